package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// Raise writes a row with a later id, which is what a revision is to kine, and how far it is compacted, all as the tenant. A kine that
// polls meanwhile would fill in each id that is left out.
func (d *database) Raise(ctx context.Context, a driver.Account, access driver.Access, above int64) error {
	if err := d.validate(a); err != nil {
		return err
	}
	opened, err := d.Data(ctx, a, access) // kine makes its table
	if err != nil {
		return err
	}
	if err := opened.Close(); err != nil {
		return err
	}
	connector, err := connect(d.endpoint, a.User, a.Password, a.Schema, d.ca.Verify())
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	s := step.New(ctx, d.held)
	s.Do("raise the revision", func(parent context.Context) error {
		ctx, cancel := context.WithTimeout(parent, limit.Step)
		defer cancel()
		err := raise(ctx, db, driver.Compacted(above))
		if err != nil && ctx.Err() != nil && parent.Err() == nil {
			return fmt.Errorf("%w within %s: %w", driver.ErrAway, limit.Step, err)
		}
		return err
	})
	if s.Err() != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return classify(s.Err())
}

// raise has revisions begin after one, and this one compacted. The row stays, for the last row's id is the present revision.
func raise(ctx context.Context, db *sql.DB, compacted int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing once it is committed
	var now, compactedNow int64
	err = tx.QueryRowContext(ctx, `SELECT coalesce(max(id), 0), coalesce(max(CASE WHEN name = 'compact_rev_key' THEN prev_revision END), 0)
		FROM kine`).Scan(&now, &compactedNow)
	if err != nil {
		return err
	}
	if compactedNow < compacted {
		done, err := tx.ExecContext(ctx, `UPDATE kine SET prev_revision = ? WHERE name = 'compact_rev_key'`, compacted)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n != 1 {
			return errors.Join(errors.New("kine's table has no compact_rev_key"), err)
		}
	}
	if now <= compacted {
		// The ids of later rows follow it.
		_, err = tx.ExecContext(ctx, `INSERT INTO kine(id, name, created, deleted, create_revision, prev_revision, lease)
			VALUES (?, ?, 0, 1, 0, 0, 0)`, compacted+1, fmt.Sprint("gap-", compacted+1))
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}
