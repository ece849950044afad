package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/postgresserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/postgres"
)

func open(t *testing.T, c driver.Config) driver.Driver {
	t.Helper()
	d, err := postgres.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a server as its administrator sees it. Its connections are made anew when they are lost: the server and its
// databases come and go.
type world struct {
	*postgresserver.Server
	conns map[string]*pgx.Conn
}

func (w world) in(t *testing.T, database string, f func(*pgx.Conn)) {
	t.Helper()
	conn := w.conns[database]
	if conn == nil || conn.Ping(t.Context()) != nil {
		var err error
		conn, err = w.Dial(t.Context(), postgresserver.Admin, postgresserver.Password, database)
		check(t, err)
		if database == "postgres" || database == "stoker" {
			w.conns[database] = conn
		}
	}
	defer func() {
		if w.conns[database] != conn {
			_ = conn.Close(context.WithoutCancel(t.Context()))
		}
	}()
	f(conn)
}

// do executes statements in the maintenance database, or in one named before a colon.
func (w world) do(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		database := "postgres"
		if in, rest, ok := strings.Cut(statement, ": "); ok {
			database, statement = in, rest
		}
		w.in(t, database, func(conn *pgx.Conn) {
			_, err := conn.Exec(t.Context(), statement)
			check(t, err)
		})
	}
}

func (w world) list(t *testing.T, database, query string, args ...any) (list []string) {
	t.Helper()
	w.in(t, database, func(conn *pgx.Conn) {
		rows, err := conn.Query(t.Context(), query, args...)
		check(t, err)
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		check(t, err)
	})
	return list
}

// revision changes with roles, memberships, databases, rights, owners and rows.
func (w world) revision(t *testing.T) string {
	all := w.list(t, "stoker", `SELECT concat(tableoid, ' ', xmin, ' ', ctid) FROM pg_authid
		UNION ALL SELECT concat(tableoid, ' ', xmin, ' ', ctid) FROM pg_auth_members
		UNION ALL SELECT concat(tableoid, ' ', oid, ' ', datdba, ' ', datacl, ' ', datallowconn) FROM pg_database
		UNION ALL SELECT concat(tableoid, ' ', xmin, ' ', ctid) FROM public.owners`)
	for _, database := range w.list(t, "postgres", "SELECT datname FROM pg_database WHERE datallowconn AND datname NOT IN ('postgres', 'stoker', 'template1')") {
		if len(w.list(t, database, "SELECT 'x' WHERE to_regclass('public.kine') IS NOT NULL")) > 0 {
			all = append(all, w.list(t, database, "SELECT concat(xmin, ' ', ctid) FROM public.kine")...)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func (w world) holds(t *testing.T, a driver.Account) (held []string) {
	t.Helper()
	held = w.list(t, "postgres", `SELECT concat('role, may ', concat_ws(' ', rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, coalesce(rolvaliduntil < 'infinity', false)), ', member of ',
		ARRAY(SELECT roleid::regrole FROM pg_auth_members WHERE member = r.oid)) FROM pg_roles r WHERE rolname = $1`, a.User)
	databases := w.list(t, "postgres", `SELECT concat('database of ', datdba::regrole, ', open ', datallowconn, ', rights ', datacl) FROM pg_database WHERE datname = $1`, a.Schema)
	held = append(append(held, databases...), w.list(t, "postgres", "SELECT concat('may enter ', datname) FROM pg_database, aclexplode(datacl) WHERE grantee = (SELECT oid FROM pg_roles WHERE rolname = $1) ORDER BY 1", a.User)...)
	if len(w.list(t, "postgres", "SELECT datname FROM pg_database WHERE datname = 'stoker'")) > 0 {
		held = append(held, w.list(t, "stoker", `SELECT concat(kind, ' is ', owner) FROM public.owners
			WHERE kind = 'schema' AND name = $1 OR kind = 'user' AND name = $2 ORDER BY 1`, a.Schema, a.User)...)
	}
	if len(databases) > 0 && strings.Contains(databases[0], "open t") {
		held = append(held, w.list(t, a.Schema, `SELECT concat(relname, ' of ', relowner::regrole, ' who may write it ', has_table_privilege(relowner, oid, 'INSERT'), has_table_privilege(relowner, oid, 'TRUNCATE'))
			FROM pg_class WHERE relname LIKE 'kine%' ORDER BY 1`)...)
		held = append(held, w.list(t, a.Schema, "SELECT concat('new tables have rights ', defaclacl) FROM pg_default_acl")...)
		held = append(held, w.list(t, a.Schema, "SELECT concat('may make tables ', has_schema_privilege($1, oid, 'CREATE'), ', use them ', has_schema_privilege($1, oid, 'USAGE')) FROM pg_namespace WHERE nspname = 'public' AND to_regrole($1) IS NOT NULL", a.User)...)
	}
	if len(held) > 0 {
		conn, err := w.Dial(t.Context(), a.User, a.Password, a.Schema)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		held = append(held, fmt.Sprint("enters ", err == nil))
	}
	return held
}

func (w world) drifts() map[string]func(t *testing.T, a driver.Account) {
	drift := func(statements ...string) func(t *testing.T, a driver.Account) {
		return func(t *testing.T, a driver.Account) { t.Helper(); w.do(t, statements...) }
	}
	return map[string]func(t *testing.T, a driver.Account){
		"the password is another":                      drift(`ALTER ROLE "drift" PASSWORD 'another'`),
		"the role has no password":                     drift(`ALTER ROLE "drift" PASSWORD NULL`),
		"the role's password expires":                  drift(`ALTER ROLE "drift" VALID UNTIL '2020-01-01'`),
		"the role can't log in":                        drift(`ALTER ROLE "drift" NOLOGIN`),
		"the role is a superuser":                      drift(`ALTER ROLE "drift" SUPERUSER`),
		"the role may make roles and databases":        drift(`ALTER ROLE "drift" CREATEROLE CREATEDB`),
		"the role may replicate":                       drift(`ALTER ROLE "drift" REPLICATION BYPASSRLS`),
		"the role is a member of another":              drift(`GRANT pg_read_all_data TO "drift"`),
		"the role may enter another database":          drift(`GRANT CONNECT ON DATABASE stoker TO "drift"`),
		"the role is deleted, its tables another's":    drift(`drift: REASSIGN OWNED BY "drift" TO postgres`, `drift: DROP OWNED BY "drift"`, `DROP ROLE "drift"`),
		"the database is another's":                    drift(`ALTER DATABASE "drift" OWNER TO postgres`),
		"the role has no rights on its database":       drift(`REVOKE ALL ON DATABASE "drift" FROM "drift"`),
		"everybody may enter the database":             drift(`GRANT CONNECT ON DATABASE "drift" TO PUBLIC`),
		"the database is closed":                       drift(`ALTER DATABASE "drift" ALLOW_CONNECTIONS false`),
		"the table is another's, as after a restore":   drift(`drift: ALTER TABLE public.kine OWNER TO postgres`),
		"the role may not write its table":             drift(`drift: REVOKE INSERT ON public.kine FROM "drift"`),
		"the role may not write tables that it makes":  drift(`drift: ALTER DEFAULT PRIVILEGES FOR ROLE "drift" REVOKE UPDATE ON TABLES FROM "drift"`),
		"the role may not use the schema of its table": drift(`drift: ALTER SCHEMA public OWNER TO postgres`, `drift: REVOKE ALL ON SCHEMA public FROM PUBLIC`),
	}
}

func TestContract(t *testing.T) {
	server := postgresserver.Start(t)
	w := world{server, map[string]*pgx.Conn{}}
	d := open(t, server.Config())
	drivertest.Run(t, drivertest.Server{
		Driver: d,
		Connect: func(_ *testing.T, a driver.Account, access driver.Access) drivertest.Tenant {
			if string(access.CA) != string(server.CA.PEM) || len(access.Cert)+len(access.Key) > 0 {
				t.Errorf("access is %q, %q", access.CA, access.Cert)
			}
			return tenant{server: server, a: a}
		},
		Stay: func(t *testing.T, a driver.Account, _ driver.Access) drivertest.Tenant {
			return tenant{server, a, server.Connect(t, a.User, a.Password, a.Schema)}
		},
		Denied:   denied,
		Revision: w.revision,
		Holds:    w.holds,
		Removes: func(int) driver.Removed {
			return driver.Removed{"Database": 1, "User": 1, driver.RemovedOwner: 2}
		},
		ReservedSchemas: []string{"postgres", "template0", "template1", "stoker", "pg_a", "Upper", strings.Repeat("a", 64)},
		ReservedUsers:   []string{"postgres", "pg_monitor", "public", "none", strings.Repeat("a", 64)},
		Drifts:          w.drifts(),
		Unseen: []string{
			"the table is another's, as after a restore", "the role may not use the schema of its table",
			"the role may not write its table", "the role may not write tables that it makes",
		},
		Disown: func(t *testing.T, a driver.Account) {
			w.do(t, fmt.Sprintf("stoker: DELETE FROM public.owners WHERE kind = 'schema' AND name = '%s' OR kind = 'user' AND name = '%s'", a.Schema, a.User))
		},
		CrashAfter: func(n int) {
			var left atomic.Int64
			left.Store(int64(n))
			postgres.SetHeld(d, func(context.Context) error {
				if n >= 0 && left.Add(-1) < 0 {
					return errors.New("crashed")
				}
				return nil
			})
		},
		Stop:  func(*testing.T) { server.Kill() },
		Start: func(t *testing.T) { server.Run(t); server.Await(t) },
	})
	t.Run("what the server's operator uses otherwise is not for tenants", func(t *testing.T) {
		w.do(t, `CREATE ROLE "app" LOGIN`, `CREATE DATABASE "app" OWNER "app"`, `app: CREATE TABLE public.orders (id int)`,
			`CREATE DATABASE "empty"`, `CREATE ROLE "backup" LOGIN IN ROLE pg_read_all_data`, `CREATE ROLE "boss" LOGIN CREATEROLE`,
			`CREATE ROLE "reader" LOGIN`, `app: GRANT SELECT ON public.orders TO "reader"`)
		for _, a := range []driver.Account{
			{Schema: "app", User: "app"}, {Schema: "empty", User: "fine"}, {Schema: "fine", User: "backup"},
			{Schema: "fine", User: "boss"}, {Schema: "fine", User: "reader"}, {Schema: "fine", User: "app"},
		} {
			a.Owner, a.Password = "uid", "password"
			var taken *driver.TakenError
			if _, err := d.Provision(t.Context(), a); !errors.As(err, &taken) || taken.Message != driver.TakenByOthers {
				t.Errorf("%s, %s: %v", a.Schema, a.User, err)
			}
			if removed, err := d.Drop(t.Context(), a); err != nil || len(removed) > 0 {
				t.Errorf("%s, %s: removed %v: %v", a.Schema, a.User, removed, err)
			}
		}
		w.do(t, `DROP DATABASE "app"`, `DROP DATABASE "empty"`, `DROP ROLE "app"`, `DROP ROLE "backup"`, `DROP ROLE "boss"`, `DROP ROLE "reader"`)
	})
	t.Run("a tenant that left its mark elsewhere is dropped, and thrown out where it is in", func(t *testing.T) {
		a := driver.Account{Owner: "uid", Schema: "marks", User: "marks", Password: "password"}
		_, err := d.Provision(t.Context(), a)
		check(t, err)
		inside := server.Connect(t, "marks", "password", "marks")
		check(t, inside.Ping(t.Context()))
		elsewhere := server.Connect(t, "marks", "password", "postgres")
		_, err = elsewhere.Exec(t.Context(), "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC")
		check(t, err)
		w.do(t, `GRANT CONNECT ON DATABASE stoker TO "marks"`, `ALTER DATABASE "marks" IS_TEMPLATE true`)
		removed, err := d.Drop(t.Context(), a)
		check(t, err)
		if removed["User"] != 1 || removed["Database"] != 1 || len(w.holds(t, a)) > 0 {
			t.Errorf("removed %v, left %q", removed, w.holds(t, a))
		}
		for where, conn := range map[string]*pgx.Conn{"inside": inside, "elsewhere": elsewhere} {
			drivertest.Eventually(t, func() error { // a server that is told to end a connection does so in a moment
				_, err := conn.Exec(t.Context(), "SELECT 1")
				if err == nil {
					return errors.New("it is still " + where)
				}
				if ended := (*pgconn.PgError)(nil); !errors.As(err, &ended) || ended.Code != "57P01" { // by the administrator
					t.Errorf("it is no longer %s: %v", where, err)
				}
				return nil
			})
		}
	})
	t.Run("names made by a tenant in its database don't fool the administrator", func(t *testing.T) {
		a := driver.Account{Owner: "uid", Schema: "trap", User: "trap", Password: "password"}
		_, err := d.Provision(t.Context(), a)
		check(t, err)
		conn := server.Connect(t, "trap", "password", "trap")
		for _, statement := range []string{
			`CREATE FUNCTION public.trap() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN EXECUTE ''ALTER ROLE trap SUPERUSER''; RETURN 1; END'`,
			`CREATE VIEW public.kine AS SELECT public.trap() AS id, ''::text AS name`,
			`CREATE VIEW public.pg_class AS SELECT public.trap() AS oid, ''::name AS relname`,
			`CREATE FUNCTION public.count(text) RETURNS bigint LANGUAGE sql AS 'SELECT public.trap()'`,
			`CREATE FUNCTION public.format(text, name, name, text) RETURNS text LANGUAGE sql AS 'SELECT public.trap()::text'`,
			`CREATE TABLE public."x""; ALTER ROLE trap SUPERUSER; --" (id int)`,
			`ALTER DATABASE trap SET search_path = public, pg_catalog`,
		} {
			_, err := conn.Exec(t.Context(), statement)
			check(t, err)
		}
		w.do(t, `trap: ALTER TABLE public."x""; ALTER ROLE trap SUPERUSER; --" OWNER TO postgres`)
		for _, setting := range []string{"default_transaction_read_only = on", "role = 'trap'"} {
			_, err = conn.Exec(t.Context(), "ALTER DATABASE trap SET "+setting)
			check(t, err)
		}
		if changed, err := d.Provision(t.Context(), a); err != nil || !slices.Equal(changed, []string{"tables given to the role"}) {
			t.Errorf("changed %q: %v", changed, err)
		}
		_, err = d.(driver.Sizer).Sizes(t.Context())
		check(t, err)
		w.do(t, "stoker: DELETE FROM public.owners")
		var taken *driver.TakenError
		if err := d.Claim(t.Context(), a); !errors.As(err, &taken) {
			t.Error(err)
		}
		a.Remembered = true
		_, err = d.Drop(t.Context(), a)
		check(t, err)
		if mighty := w.list(t, "postgres", "SELECT rolname FROM pg_roles WHERE rolsuper"); len(mighty) != 1 {
			t.Errorf("superusers are %q", mighty)
		}
	})
	t.Run("no owner is left on record when all are dropped", func(t *testing.T) {
		if left := w.list(t, "stoker", "SELECT concat(kind, ' ', name) FROM public.owners"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	t.Run("the database of owners is made anew when it is lost, and closed when it was opened", func(t *testing.T) {
		a := driver.Account{Owner: "uid", Schema: "again", User: "again", Password: "password"}
		_, err := d.Provision(t.Context(), a)
		check(t, err)
		a.Remembered = true
		w.do(t, "DROP DATABASE stoker WITH (FORCE)")
		drivertest.Eventually(t, func() error { _, err := d.Provision(t.Context(), a); return err })
		w.do(t, "stoker: DROP TABLE public.owners")
		_, err = d.Provision(t.Context(), a)
		check(t, err)
		w.do(t, "GRANT ALL ON DATABASE stoker TO PUBLIC")
		other := open(t, server.Config())
		check(t, other.Check(t.Context()))
		for what, err := range (tenant{server: server, a: a}).Administer(t.Context()) {
			if !denied(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err = d.Drop(t.Context(), a)
		check(t, err)
	})
	t.Run("a server that is shutting down counts as away", func(t *testing.T) {
		keeper := server.Connect(t, postgresserver.Admin, postgresserver.Password, "postgres")
		server.Stop(t)
		drivertest.Eventually(t, func() error {
			if err := open(t, server.Config()).Check(t.Context()); err == nil {
				return errors.New("it still answers")
			} else if !errors.Is(err, driver.ErrAway) {
				t.Error(err)
			}
			return nil
		})
		check(t, keeper.Close(t.Context()))
	})
}

func TestManyTenantsFewConnections(t *testing.T) {
	tenants := 200
	if testing.Short() {
		tenants = 60
	}
	server := postgresserver.Start(t, "max_connections=20")
	d := open(t, server.Config())
	var most atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		conn, err := server.Dial(ctx, postgresserver.Admin, postgresserver.Password, "postgres")
		for err == nil {
			var n int64
			if err = conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stoker'").Scan(&n); err == nil && n > most.Load() {
				most.Store(n)
			}
		}
	}()
	each := func(what string, step func(a driver.Account) error) {
		began := time.Now()
		var wg sync.WaitGroup
		for i := range tenants {
			wg.Go(func() {
				n := fmt.Sprint("tenant", i)
				a := driver.Account{Owner: n, Schema: n, User: n, Password: "password"}
				if err := drivertest.Persist(func() error { return step(a) }); err != nil {
					t.Errorf("%s of %s: %v", what, n, err)
				}
			})
		}
		wg.Wait()
		t.Logf("%s of %d at once: %s", what, tenants, time.Since(began).Round(time.Millisecond))
	}
	each("provision", func(a driver.Account) error { _, err := d.Provision(t.Context(), a); return err })
	each("provision again", func(a driver.Account) error {
		changed, err := d.Provision(t.Context(), a)
		if len(changed) > 0 {
			return fmt.Errorf("changed %q", changed)
		}
		return err
	})
	began := time.Now()
	var sizes map[string]driver.Size
	read := func() (err error) { sizes, err = d.(driver.Sizer).Sizes(t.Context()); return err }
	err := drivertest.Persist(read)
	if err != nil || len(sizes) != tenants {
		t.Errorf("%d sizes: %v", len(sizes), err)
	}
	t.Logf("sizes of %d, all new: %s", tenants, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	check(t, drivertest.Persist(read))
	t.Logf("sizes of %d, none changed: %s", tenants, time.Since(began).Round(time.Millisecond))
	each("drop", func(a driver.Account) error { _, err := d.Drop(t.Context(), a); return err })
	cancel()
	<-watched
	t.Logf("%d connections at most, with those that were just ending", most.Load())
}

// tenant uses the server with a tenant's password, by a new connection each time.
type tenant struct {
	server *postgresserver.Server
	a      driver.Account
	conn   *pgx.Conn // used instead, if it is there
}

func (c tenant) in(ctx context.Context, database string, f func(*pgx.Conn) error) error {
	if c.conn != nil {
		return f(c.conn)
	}
	conn, err := c.server.Dial(ctx, c.a.User, c.a.Password, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return f(conn)
}

func (c tenant) Write(ctx context.Context, schema, key, value string) error {
	return c.in(ctx, schema, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS public.kine (id bigserial PRIMARY KEY, name text, value bytea)")
		if err == nil {
			_, err = conn.Exec(ctx, "INSERT INTO public.kine (name, value) VALUES ($1, $2)", key, []byte(value))
		}
		return err
	})
}

func (c tenant) Read(ctx context.Context, schema, key string) (value string, err error) {
	err = c.in(ctx, schema, func(conn *pgx.Conn) error {
		var bytes []byte
		err := conn.QueryRow(ctx, "SELECT value FROM public.kine WHERE name = $1 ORDER BY id DESC LIMIT 1", key).Scan(&bytes)
		value = string(bytes)
		return err
	})
	return value, err
}

func (c tenant) Administer(ctx context.Context) map[string]error {
	came := map[string]error{"comes into stoker": c.in(ctx, "stoker", func(conn *pgx.Conn) error { return conn.Ping(ctx) })}
	for _, database := range []string{c.a.Schema, "postgres"} {
		for _, statement := range []string{
			`CREATE ROLE intruder`, `CREATE DATABASE intruder`, `SET ROLE postgres`, `ALTER ROLE CURRENT_USER SUPERUSER`, `ALTER ROLE postgres PASSWORD 'x'`,
			`SELECT rolpassword FROM pg_authid`, `SELECT pg_read_file('postgresql.conf')`, `COPY (SELECT 1) TO PROGRAM 'true'`,
			`CREATE TABLE public.intruder ()`, `ALTER SYSTEM SET log_connections = on`, `SELECT lo_import('/etc/passwd')`, `DROP DATABASE stoker`,
		} {
			if database == c.a.Schema && strings.HasPrefix(statement, "CREATE TABLE") {
				continue // its own
			}
			came[database+": "+statement] = c.in(ctx, database, func(conn *pgx.Conn) error { _, err := conn.Exec(ctx, statement); return err })
		}
	}
	return came
}

func TestKine(t *testing.T) {
	server := postgresserver.Start(t)
	drivertest.Kine(t, open(t, server.Config()), func(a driver.Account, _ string) string { return drivertest.URL("postgres", server.Endpoint, a) })
}

// denied reports whether an error is the server's no: insufficient_privilege, or a password that isn't accepted.
func denied(err error) bool {
	var no *pgconn.PgError
	return errors.As(err, &no) && slices.Contains([]string{"42501", "28P01"}, no.Code)
}
