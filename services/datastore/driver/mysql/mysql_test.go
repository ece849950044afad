package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/mysqlserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/mysql"
)

func open(t *testing.T, c driver.Config) driver.Driver {
	t.Helper()
	d, err := mysql.Open(c)
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

// world is a server as its administrator sees it.
type world struct {
	*mysqlserver.Server
	db *sql.DB
}

func newWorld(t *testing.T, server *mysqlserver.Server) world {
	t.Helper()
	db, err := server.DB(mysqlserver.Admin, mysqlserver.Password, "")
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return world{server, db}
}

func (w world) do(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := w.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// list returns the rows of a query, each as its columns one after the other.
func (w world) list(t *testing.T, query string, args ...any) (list []string) {
	t.Helper()
	rows, err := w.db.QueryContext(t.Context(), query, args...)
	check(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	check(t, err)
	for rows.Next() {
		values, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		check(t, rows.Scan(to...))
		var row []string
		for _, value := range values {
			row = append(row, value.String)
		}
		list = append(list, strings.Join(row, " "))
	}
	check(t, rows.Err())
	return list
}

// revision changes with users, roles, databases, rights, owners and rows.
func (w world) revision(t *testing.T) string {
	t.Helper()
	queries := []string{"SELECT * FROM mysql.user", "SELECT * FROM mysql.db", "SELECT * FROM mysql.tables_priv", "SELECT * FROM stoker.owners", "SHOW DATABASES"}
	if w.MariaDB {
		queries = append(queries, "SELECT * FROM mysql.global_priv", "SELECT * FROM mysql.roles_mapping")
	} else {
		queries = append(queries, "SELECT * FROM mysql.role_edges")
	}
	for _, database := range w.list(t, "SELECT table_schema FROM information_schema.tables WHERE table_name = 'kine'") {
		queries = append(queries, "SELECT * FROM `"+database+"`.kine")
	}
	var all []string
	for _, query := range queries {
		rows := w.list(t, query)
		slices.Sort(rows)
		all = append(append(all, query), rows...)
	}
	return strings.Join(all, "\n")
}

func (w world) holds(t *testing.T, a driver.Account) (held []string) {
	t.Helper()
	for _, host := range w.list(t, "SELECT Host FROM mysql.user WHERE User = ? ORDER BY 1", a.User) {
		held = append(held, w.list(t, "SELECT 'user of', Host, 'with TLS', ssl_type, 'expires', password_expired FROM mysql.user WHERE User = ? AND Host = ?", a.User, host)...)
		for _, line := range w.list(t, "SHOW GRANTS FOR `"+a.User+"`@`"+host+"`") {
			line, _, _ = strings.Cut(line, " IDENTIFIED BY")
			held = append(held, line)
		}
	}
	held = append(held, w.list(t, "SELECT 'database', schema_name FROM information_schema.schemata WHERE schema_name = ?", a.Schema)...)
	if len(w.list(t, "SHOW DATABASES LIKE 'stoker'")) > 0 {
		held = append(held, w.list(t, "SELECT kind, 'is', owner FROM stoker.owners WHERE kind = 'schema' AND name = ? OR kind = 'user' AND name = ? ORDER BY 1", a.Schema, a.User)...)
	}
	held = append(held, w.list(t, "SELECT 'table', table_name FROM information_schema.tables WHERE table_schema = ?", a.Schema)...)
	if len(held) > 0 {
		err := (tenant{server: w.Server, a: a}).in(t.Context(), a.Schema, func(*sql.DB) error { return nil })
		held = append(held, fmt.Sprint("enters ", err == nil))
	}
	return held
}

func (w world) drifts() map[string]func(t *testing.T, a driver.Account) {
	drift := func(statements ...string) func(t *testing.T, a driver.Account) {
		return func(t *testing.T, a driver.Account) { t.Helper(); w.do(t, statements...) }
	}
	drifts := map[string]func(t *testing.T, a driver.Account){
		"the password is another":                      drift("ALTER USER drift IDENTIFIED BY 'another'"),
		"the user is locked":                           drift("ALTER USER drift ACCOUNT LOCK"),
		"the user's password expires":                  drift("ALTER USER drift PASSWORD EXPIRE"),
		"the user may do without TLS":                  drift("ALTER USER drift REQUIRE NONE"),
		"the user must have a certificate":             drift("ALTER USER drift REQUIRE X509"),
		"the user is deleted":                          drift("DROP USER drift"),
		"the user has lost a right":                    drift("REVOKE INSERT ON drift.* FROM drift"),
		"the user has lost all rights":                 drift("REVOKE ALL PRIVILEGES, GRANT OPTION FROM drift"),
		"the user has one right more":                  drift("GRANT DROP ON drift.* TO drift"),
		"the user has all rights on its database":      drift("GRANT ALL ON drift.* TO drift"),
		"the user may grant its rights to others":      drift("GRANT SELECT ON drift.* TO drift WITH GRANT OPTION"),
		"the user may read another database":           drift("GRANT SELECT ON stoker.* TO drift"),
		"the user may read databases of similar names": drift("GRANT SELECT ON `drif_`.* TO drift"),
		"the user may read another table":              drift("GRANT SELECT ON stoker.owners TO drift"),
		"the user may read another column":             drift("GRANT SELECT (name) ON stoker.owners TO drift"),
		"the user may read everything":                 drift("GRANT SELECT ON *.* TO drift"),
		"the user is an administrator":                 drift("GRANT ALL ON *.* TO drift WITH GRANT OPTION"),
		"the user has a role":                          drift("CREATE ROLE IF NOT EXISTS power", "GRANT power TO drift"),
		"the user may pass a role on":                  drift("CREATE ROLE IF NOT EXISTS power", "GRANT power TO drift WITH ADMIN OPTION"),
		"the user may act as another":                  drift("CREATE USER IF NOT EXISTS boss", "GRANT PROXY ON boss TO drift"),
		"a user of the same name has another host":     drift("CREATE USER drift@127.0.0.1 IDENTIFIED BY 'x'", "GRANT SELECT ON *.* TO drift@127.0.0.1"),
	}
	return drifts
}

func TestContract(t *testing.T) {
	t.Parallel()
	server := mysqlserver.Start(t)
	w := newWorld(t, server)
	d := open(t, server.Config())
	drivertest.Run(t, drivertest.Server{
		Driver: d,
		Connect: func(t *testing.T, a driver.Account, access driver.Access) drivertest.Tenant {
			if string(access.CA) != string(server.CA.PEM) || len(access.Cert)+len(access.Key) > 0 {
				t.Errorf("access is %q, %q", access.CA, access.Cert)
			}
			return tenant{server: server, a: a}
		},
		Stay: func(t *testing.T, a driver.Account, _ driver.Access) drivertest.Tenant {
			db, err := server.DB(a.User, a.Password, a.Schema)
			check(t, err)
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(1)
			return tenant{server, a, db}
		},
		Denied:   denied,
		Revision: w.revision,
		Holds:    w.holds,
		Removes: func(int) driver.Removed {
			return driver.Removed{"Database": 1, "User": 1, driver.RemovedOwner: 2}
		},
		ReservedSchemas: []string{"mysql", "information_schema", "Performance_Schema", "sys", "stoker", strings.Repeat("a", 65)},
		ReservedUsers:   []string{"root", "admin", "Admin", "public", "mysql.sys", "mariadb.sys", strings.Repeat("a", 33)},
		Drifts:          w.drifts(),
		Disown: func(t *testing.T, a driver.Account) {
			w.do(t, fmt.Sprintf("DELETE FROM stoker.owners WHERE kind = 'schema' AND name = '%s' OR kind = 'user' AND name = '%s'", a.Schema, a.User))
		},
		CrashAfter: func(n int) {
			var left atomic.Int64
			left.Store(int64(n))
			mysql.SetHeld(d, func(context.Context) error {
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
		w.do(t, "CREATE DATABASE app", "CREATE TABLE app.orders (id int)", "CREATE USER app IDENTIFIED BY 'x'", "GRANT ALL ON app.* TO app",
			"CREATE DATABASE bare", "CREATE USER backup IDENTIFIED BY 'x'", "GRANT SELECT ON *.* TO backup", "CREATE USER near@localhost IDENTIFIED BY 'x'",
			"CREATE ROLE roll")
		for _, a := range []driver.Account{
			{Schema: "app", User: "app"}, {Schema: "bare", User: "fine"}, {Schema: "fine", User: "backup"}, {Schema: "fine", User: "near"},
			{Schema: "fine", User: "app"}, {Schema: "fine", User: "roll"},
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
		w.do(t, "DROP DATABASE app", "DROP DATABASE bare", "DROP USER app, backup, near@localhost", "DROP ROLE roll")
	})
	t.Run("names of databases that everybody may use are not for tenants", func(t *testing.T) {
		w.do(t, `INSERT INTO mysql.db (Host, Db, User, Select_priv) VALUES ('%', 'test\\_%', '', 'Y')`, "FLUSH PRIVILEGES")
		for schema, fit := range map[string]bool{"test_a": false, "testa": true} {
			a := driver.Account{Owner: "uid", Schema: schema, User: "public-test", Password: "password"}
			_, err := d.Provision(t.Context(), a)
			var bad *driver.NameError
			if errors.As(err, &bad) == fit {
				t.Errorf("%s: %v", schema, err)
			}
			if fit {
				_, err := d.Drop(t.Context(), a)
				check(t, err)
			}
		}
		w.do(t, "DELETE FROM mysql.db WHERE User = ''", "FLUSH PRIVILEGES")
	})
	t.Run("a tenant that is dropped is thrown out where it is in", func(t *testing.T) {
		a := driver.Account{Owner: "uid", Schema: "inside", User: "inside", Password: "password"}
		_, err := d.Provision(t.Context(), a)
		check(t, err)
		db, err := server.DB(a.User, a.Password, a.Schema)
		check(t, err)
		defer db.Close()
		conn, err := db.Conn(t.Context())
		check(t, err)
		defer conn.Close()
		check(t, conn.PingContext(t.Context()))
		removed, err := d.Drop(t.Context(), a)
		check(t, err)
		if !maps.Equal(removed, driver.Removed{"Database": 1, "User": 1, driver.RemovedOwner: 2}) {
			t.Errorf("removed %v", removed)
		}
		drivertest.Eventually(t, func() error { // a server that is told to end a connection does so in a moment
			err := conn.PingContext(t.Context())
			if err == nil {
				return errors.New("it is still inside")
			}
			if !errors.Is(err, gomysql.ErrInvalidConn) {
				t.Errorf("it ends with %v", err)
			}
			return nil
		})
	})
	t.Run("no owner is left on record when all are dropped", func(t *testing.T) {
		if left := w.list(t, "SELECT kind, name FROM stoker.owners"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	t.Run("the database of owners is made anew when it is lost", func(t *testing.T) {
		a := driver.Account{Owner: "uid", Schema: "again", User: "again", Password: "password"}
		_, err := d.Provision(t.Context(), a)
		check(t, err)
		a.Remembered = true
		w.do(t, "DROP DATABASE stoker")
		_, err = d.Provision(t.Context(), a)
		check(t, err)
		_, err = d.Drop(t.Context(), a)
		check(t, err)
	})
	t.Run("a server that takes no writes counts as away", func(t *testing.T) {
		w.do(t, "SET GLOBAL read_only = 1")
		if err := d.Check(t.Context()); !errors.Is(err, driver.ErrAway) {
			t.Error(err)
		}
		w.do(t, "SET GLOBAL read_only = 0")
		check(t, d.Check(t.Context()))
	})
}

func TestServerThatLowersNames(t *testing.T) {
	t.Parallel()
	server := mysqlserver.Start(t, "lower-case-table-names=1", "sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES")
	d := open(t, server.Config())
	a := driver.Account{Owner: "uid", Schema: "lower_1", User: "Upper", Password: "password"}
	_, err := d.Provision(t.Context(), a)
	check(t, err)
	changed, err := d.Provision(t.Context(), a)
	if err != nil || len(changed) > 0 {
		t.Errorf("changed %q: %v", changed, err)
	}
	var bad *driver.NameError
	if err := d.Claim(t.Context(), driver.Account{Owner: "other", Schema: "Lower_1", User: "other"}); !errors.As(err, &bad) || bad.Field != driver.FieldSchema {
		t.Error(err)
	}
	removed, err := d.Drop(t.Context(), a)
	if err != nil || removed["Database"] != 1 {
		t.Errorf("removed %v: %v", removed, err)
	}
}

// tenant uses the server with a tenant's password, by a new connection each time.
type tenant struct {
	server *mysqlserver.Server
	a      driver.Account
	db     *sql.DB // used instead, if it is there
}

func (c tenant) in(ctx context.Context, database string, f func(*sql.DB) error) error {
	if c.db != nil {
		return f(c.db)
	}
	db, err := c.server.DB(c.a.User, c.a.Password, database)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	return f(db)
}

func (c tenant) Write(ctx context.Context, schema, key, value string) error {
	return c.in(ctx, schema, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS kine (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, name varchar(630) CHARACTER SET ascii, value mediumblob, KEY kine_name_index (name))`)
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT INTO kine (name, value) VALUES (?, ?)", key, value)
		}
		return err
	})
}

func (c tenant) Read(ctx context.Context, schema, key string) (value string, err error) {
	err = c.in(ctx, schema, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT value FROM kine WHERE name = ? ORDER BY id DESC LIMIT 1", key).Scan(&value)
	})
	return value, err
}

func (c tenant) Administer(ctx context.Context) map[string]error {
	came := map[string]error{}
	for _, statement := range []string{
		"SELECT * FROM stoker.owners", "INSERT INTO stoker.owners VALUES ('schema', 'x', 'intruder')", "USE stoker", "USE mysql",
		"CREATE USER intruder", "CREATE DATABASE intruder", "DROP DATABASE `" + c.a.Schema + "`", "GRANT SELECT ON *.* TO CURRENT_USER",
		"GRANT SELECT ON `" + c.a.Schema + "`.* TO admin", "SET GLOBAL read_only = 1", "SELECT LOAD_FILE('/etc/passwd')+1 FROM mysql.user",
		"SELECT * FROM mysql.user", "ALTER USER admin IDENTIFIED BY 'x'",
	} {
		came[statement] = c.do(ctx, statement)
	}
	admin := tenant{server: c.server, a: driver.Account{User: mysqlserver.Admin, Password: mysqlserver.Password}}
	came["KILL of the administrator's connection"] = admin.in(ctx, "", func(db *sql.DB) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		var id int
		if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return err
		}
		return c.do(ctx, fmt.Sprintf("KILL %d", id))
	})
	return came
}

func (c tenant) do(ctx context.Context, statement string) error {
	return c.in(ctx, c.a.Schema, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
}

func TestKine(t *testing.T) {
	t.Parallel()
	server := mysqlserver.Start(t)
	drivertest.Kine(t, open(t, server.Config()), func(a driver.Account, _ string) string {
		return fmt.Sprintf("mysql://%s:%s@tcp(%s)/%s", a.User, a.Password, server.Endpoint, a.Schema)
	})
}

// denied reports whether an error is the server's no: to a user that doesn't come in, a database, a table, a privilege, or the end of
// another's connection.
func denied(err error) bool {
	var no *gomysql.MySQLError
	return errors.As(err, &no) && slices.Contains([]uint16{1044, 1045, 1095, 1142, 1227}, no.Number)
}

// TestAServerOutOfRoom has one whose tables may not grow any more.
func TestAServerOutOfRoom(t *testing.T) {
	server := mysqlserver.Start(t, "innodb-file-per-table=0", "innodb-data-file-path=ibdata1:12M:autoextend:max:20M")
	db, err := server.DB(mysqlserver.Admin, mysqlserver.Password, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d, err := mysql.Open(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"CREATE DATABASE filler", "CREATE TABLE filler.t (b LONGBLOB)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for size := 1 << 20; size >= 1; { // the last pages, too
		if _, err := db.ExecContext(t.Context(), "INSERT INTO filler.t VALUES (REPEAT('x', ?))", size); err != nil {
			size /= 4
		}
	}
	for n := 0; err == nil; n++ { // until the records of owners need another page
		account := fmt.Sprint("late", n)
		err = d.Claim(t.Context(), driver.Account{Owner: "uid", Schema: account, User: account})
	}
	if !errors.Is(err, driver.ErrFull) {
		t.Error(err)
	}
	if err := d.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
