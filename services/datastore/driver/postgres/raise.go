package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// Raise writes a row with a later id, which is what a revision is to kine, and how far it is compacted, all as the tenant. A kine that
// polls meanwhile would fill in each id that is left out.
func (p *postgres) Raise(ctx context.Context, a driver.Account, access driver.Access, above int64) error {
	if err := p.validate(a); err != nil {
		return err
	}
	opened, err := p.Data(ctx, a, access) // kine makes its table
	if err != nil {
		return err
	}
	if err := opened.Close(); err != nil {
		return err
	}
	config, err := p.tenantConfig(a, access)
	if err != nil {
		return err
	}
	s := step.New(ctx, p.held)
	s.Do("raise the revision", func(ctx context.Context) error {
		return p.inside(ctx, config, a.Schema, func(ctx context.Context, conn *pgx.Conn) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return raise(ctx, tx, driver.Compacted(above)) })
		})
	})
	if s.Err() != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return classify(s.Err())
}

// raise has revisions begin after one, and this one compacted. The row stays, for the last row's id is the present revision.
func raise(ctx context.Context, tx pgx.Tx, compacted int64) error {
	var now, compactedNow int64
	err := tx.QueryRow(ctx, `SELECT coalesce(max(id), 0), coalesce(max(prev_revision) FILTER (WHERE name = 'compact_rev_key'), 0)
		FROM public.kine`).Scan(&now, &compactedNow)
	if err != nil {
		return err
	}
	if compactedNow < compacted {
		done, err := tx.Exec(ctx, `UPDATE public.kine SET prev_revision = $1 WHERE name = 'compact_rev_key'`, compacted)
		if err != nil {
			return err
		}
		if done.RowsAffected() != 1 {
			return errors.New("kine's table has no compact_rev_key")
		}
	}
	if now > compacted {
		return nil
	}
	_, err = tx.Exec(ctx, `INSERT INTO public.kine(id, name, created, deleted, create_revision, prev_revision, lease)
		VALUES ($1, $2, 0, 1, 0, 0, 0)`, compacted+1, fmt.Sprint("gap-", compacted+1))
	if err != nil {
		return err
	}
	// Not undone with the transaction: the last step of it.
	_, err = tx.Exec(ctx, `SELECT setval(pg_get_serial_sequence('public.kine', 'id'), $1)`, compacted+1)
	return err
}
