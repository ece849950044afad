package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

// count is what a database held when it was last counted.
type count struct{ rows, keys int64 }

// Sizes asks for the bytes of all databases at once. Keys are known in each database alone: those where rows came or
// went since the last time are connected to, one after the other, and read what PostgreSQL's own statistics say.
func (p *postgres) Sizes(ctx context.Context) (map[string]driver.Size, error) {
	p.counting.Lock()
	defer p.counting.Unlock()
	sizes, rows := map[string]driver.Size{}, map[string]int64{}
	err := p.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		clear(sizes)
		return s.Rows(ctx, `SELECT d.datname, CASE WHEN has_database_privilege(d.oid, 'CONNECT') THEN pg_database_size(d.oid) ELSE 0 END, coalesce(t.tup_inserted + t.tup_deleted, 0)
			FROM public.owners o JOIN pg_database d ON d.datname = o.name LEFT JOIN pg_stat_database t ON t.datid = d.oid
			WHERE o.kind = 'schema' AND d.datallowconn`, nil, func(scan func(...any) error) error {
			var schema string
			var size driver.Size
			var moved int64
			if err := scan(&schema, &size.Bytes, &moved); err != nil {
				return err
			}
			sizes[schema], rows[schema] = size, moved
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	counted := make(map[string]count, len(sizes))
	for schema, size := range sizes {
		last, known := p.counted[schema]
		if !known || last.rows != rows[schema] {
			keys, err := p.keys(ctx, schema)
			switch err = classify(err); {
			case errors.Is(err, driver.ErrAway), ctx.Err() != nil:
				return nil, err
			case err != nil: // dropped meanwhile, or closed by hand: its bytes are known all the same
				keys = last.keys
			}
			last = count{rows[schema], keys}
		}
		counted[schema] = last
		size.Keys = last.keys
		sizes[schema] = size
	}
	p.counted = counted
	return sizes, nil
}

// keys of a database: as large a part of the rows of kine's table as had names of its own when PostgreSQL last analyzed
// it, all of them before. Only PostgreSQL's own tables are read, for what is named kine may be a view, whose functions
// would run as who reads it.
func (p *postgres) keys(ctx context.Context, schema string) (keys int64, err error) {
	err = p.inside(ctx, p.admin, schema, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT (rows * least(1, CASE WHEN names < 0 THEN -names WHEN rows > 0 THEN names / rows ELSE 0 END))::bigint
			FROM (SELECT
				-- After a crash the first is gone.
				coalesce(nullif(t.n_live_tup, 0), greatest(c.reltuples, 0), 0)::float8 AS rows,
				coalesce((SELECT n_distinct FROM pg_stats WHERE schemaname = 'public' AND tablename = 'kine' AND attname = 'name'), -1) AS names
				FROM (SELECT to_regclass('public.kine') AS oid) kine
				LEFT JOIN pg_class c ON c.oid = kine.oid LEFT JOIN pg_stat_user_tables t ON t.relid = kine.oid) estimate`).Scan(&keys)
	})
	return keys, err
}
