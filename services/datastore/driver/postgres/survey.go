package postgres

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

var _ driver.Surveyor = (*postgres)(nil)

// Survey is one query of the tables that all databases share. What is wrong inside a tenant's database, as a table that is
// another's, isn't seen there; nor is a changed password unless the administrator is a superuser.
func (p *postgres) Survey(ctx context.Context, schemas ...string) (map[string]string, error) {
	seen := map[string]string{}
	err := p.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		clear(seen)
		roles, passwords := "pg_roles", false
		if err := s.Row(ctx, "SELECT has_table_privilege('pg_authid', 'SELECT')", nil, &passwords); err != nil {
			return err
		}
		if passwords {
			roles = "pg_authid"
		}
		return s.Rows(ctx, `SELECT s.name, json_build_array(s.owner, u.name, r.oid::text, r.rolcanlogin, r.rolsuper, r.rolcreatedb, r.rolcreaterole, r.rolreplication,
				r.rolbypassrls, r.rolconnlimit, r.rolpassword, r.rolvaliduntil, d.oid::text, d.datdba::text, d.datacl::text, d.datallowconn, d.datistemplate, d.datconnlimit,
				ARRAY(SELECT m.roleid::text FROM pg_auth_members m WHERE m.member = r.oid ORDER BY 1),
				ARRAY(SELECT concat(x.dbid, ' ', x.classid, ' ', x.objid, ' ', x.deptype) FROM pg_shdepend x
					WHERE x.refclassid = 'pg_authid'::regclass AND x.refobjid = r.oid AND x.dbid IS DISTINCT FROM d.oid ORDER BY 1))::text
			FROM public.owners s
			LEFT JOIN public.owners u ON u.kind = 'user' AND u.owner = s.owner
			LEFT JOIN `+roles+` r ON r.rolname = u.name
			LEFT JOIN pg_database d ON d.datname = s.name
			WHERE s.kind = 'schema' AND (cardinality($1::text[]) = 0 OR s.name = ANY($1::text[]))
			ORDER BY s.name, u.name`, []any{append([]string{}, schemas...)}, func(scan func(...any) error) error {
			var schema, found string
			err := scan(&schema, &found)
			seen[schema] = driver.Fingerprint(seen[schema], found)
			return err
		})
	})
	return seen, err
}
