package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

var _ driver.Revisioner = (*postgres)(nil)

// Revision is the last one that kine's sequence gave out; 0 where the administrator may not see it. As in keys, only PostgreSQL's own tables
// are read.
func (p *postgres) Revision(ctx context.Context, a driver.Account) (revision int64, err error) {
	err = p.inside(ctx, p.admin, a.Schema, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT coalesce(max(last_value), 0) FROM pg_catalog.pg_sequences
			WHERE schemaname = 'public' AND sequencename = 'kine_id_seq'`).Scan(&revision)
	})
	return revision, classify(err)
}
