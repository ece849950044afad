package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

var _ driver.Surveyor = (*database)(nil)

// Where each server keeps what it knows of users. Each query has two columns: the user and what is said of him.
var (
	surveyBoth = []string{
		`SELECT User, concat_ws(' ', 'db', Host, Db, Select_priv, Insert_priv, Update_priv, Delete_priv, Create_priv, Drop_priv, Grant_priv, References_priv,
			Index_priv, Alter_priv, Create_tmp_table_priv, Lock_tables_priv, Create_view_priv, Show_view_priv, Create_routine_priv, Alter_routine_priv,
			Execute_priv, Event_priv, Trigger_priv) FROM mysql.db`,
		"SELECT User, concat_ws(' ', 'table', Host, Db, Table_name, Table_priv, Column_priv) FROM mysql.tables_priv",
		"SELECT User, concat_ws(' ', 'routine', Host, Db, Routine_name, Routine_type, Proc_priv) FROM mysql.procs_priv",
		"SELECT User, concat_ws(' ', 'proxy', Host, Proxied_host, Proxied_user, With_grant) FROM mysql.proxies_priv",
	}
	surveyMariaDB = append([]string{
		"SELECT User, concat_ws(' ', 'user', Host, Priv) FROM mysql.global_priv",
		"SELECT User, concat_ws(' ', 'role', Host, Role, Admin_option) FROM mysql.roles_mapping",
	}, surveyBoth...)
	surveyMySQL = append([]string{
		`SELECT User, concat_ws(' ', 'user', Host, Select_priv, Insert_priv, Update_priv, Delete_priv, Create_priv, Drop_priv, Reload_priv, Shutdown_priv,
			Process_priv, File_priv, Grant_priv, References_priv, Index_priv, Alter_priv, Show_db_priv, Super_priv, Create_tmp_table_priv, Lock_tables_priv,
			Execute_priv, Repl_slave_priv, Repl_client_priv, Create_view_priv, Show_view_priv, Create_routine_priv, Alter_routine_priv, Create_user_priv,
			Event_priv, Trigger_priv, Create_tablespace_priv, Create_role_priv, Drop_role_priv, ssl_type, plugin, hex(authentication_string), password_expired,
			password_lifetime, account_locked, max_user_connections) FROM mysql.user`,
		"SELECT USER, concat_ws(' ', 'global', HOST, PRIV, WITH_GRANT_OPTION) FROM mysql.global_grants",
		"SELECT TO_USER, concat_ws(' ', 'role', TO_HOST, FROM_USER, FROM_HOST, WITH_ADMIN_OPTION) FROM mysql.role_edges",
	}, surveyBoth...)
)

// Survey reads the server's tables of users and rights, which are in memory or small, and the names of databases.
func (d *database) Survey(ctx context.Context, schemas ...string) (map[string]string, error) {
	seen := map[string]string{}
	err := d.do(ctx, func(ctx context.Context, s *sqlpool.Session) error {
		clear(seen)
		var version string
		if err := s.Row(ctx, "SELECT version()", nil, &version); err != nil {
			return err
		}
		users, of := map[string][]string{}, map[string]string{} // what is said of users; the user of each owner
		type schema struct{ name, owner, database string }
		var all []schema
		if err := s.Rows(ctx, `SELECT o.kind, o.name, o.owner, coalesce(d.schema_name, '') FROM `+own+`.owners o
			LEFT JOIN information_schema.schemata d ON o.kind = 'schema' AND d.schema_name = o.name ORDER BY 1, 2`, nil, func(scan func(...any) error) error {
			var kind string
			var x schema
			if err := scan(&kind, &x.name, &x.owner, &x.database); err != nil {
				return err
			}
			if kind == owner.KindUser {
				users[x.name], of[x.owner] = []string{}, x.name
			} else if len(schemas) == 0 || slices.Contains(schemas, x.name) {
				all = append(all, x)
			}
			return nil
		}); err != nil {
			return err
		}
		queries := surveyMySQL
		if strings.Contains(version, "MariaDB") {
			queries = surveyMariaDB
		}
		for _, query := range queries {
			if err := s.Rows(ctx, query, nil, func(scan func(...any) error) error {
				var user string
				var said sql.NullString
				err := scan(&user, &said)
				if have, ours := users[user]; ours {
					users[user] = append(have, said.String)
				}
				return err
			}); err != nil {
				return err
			}
		}
		for _, x := range all {
			user := of[x.owner]
			slices.Sort(users[user])
			seen[x.name] = driver.Fingerprint(append([]string{x.owner, x.database, user}, users[user]...)...)
		}
		return nil
	})
	return seen, err
}
