package postgres_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/postgresserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// TestReadOnlyWaits has transactions of the tenant under way when it may only read, with an administrator who is a superuser and with one
// who isn't.
func TestReadOnlyWaits(t *testing.T) {
	server := postgresserver.Start(t)
	w := world{server, map[string]*pgx.Conn{}}
	w.do(t, `CREATE ROLE "modest" LOGIN CREATEROLE CREATEDB PASSWORD 'modest'`)
	for _, admin := range []string{postgresserver.Admin, "modest"} {
		c := server.Config()
		if admin == "modest" {
			// The database of owners is its own: it isn't another administrator's beside.
			w.do(t, "DROP DATABASE IF EXISTS stoker WITH (FORCE)")
			c.Username, c.Password = []byte(admin), []byte(admin)
		}
		d := open(t, c)
		for sentence, test := range map[string]struct{ before, within, late string }{
			"a row that is being written is written, and no other": {
				"CREATE TABLE public.kine (name text)", "INSERT INTO public.kine VALUES ('within')", "INSERT INTO public.kine VALUES ('late')",
			},
			"what is deleted meanwhile is deleted, and no more": {
				"CREATE TABLE public.kine (name text)", "INSERT INTO public.kine VALUES ('within'); DELETE FROM public.kine WHERE name = 'x'", "TRUNCATE public.kine",
			},
			"a table that is being made is made, and not written": {
				"SELECT 1", "CREATE TABLE public.kine (name text); INSERT INTO public.kine VALUES ('within')", "INSERT INTO public.kine VALUES ('late')",
			},
			"a table that is made later is not written": {
				"CREATE TABLE public.kine (name text)", "INSERT INTO public.kine VALUES ('within')",
				"CREATE TABLE public.more (name text); UPDATE public.more SET name = 'late'",
			},
		} {
			t.Run(admin+": "+sentence, func(t *testing.T) {
				a := driver.Account{Owner: "uid", Schema: "waits", User: "waits", Password: "password"}
				_, err := d.Provision(t.Context(), a)
				check(t, err)
				conn := server.Connect(t, a.User, a.Password, a.Schema)
				_, err = conn.Exec(t.Context(), test.before)
				check(t, err)
				tx, err := conn.Begin(t.Context())
				check(t, err)
				_, err = tx.Exec(t.Context(), test.within, pgx.QueryExecModeSimpleProtocol)
				check(t, err)
				a.ReadOnly = true
				done := make(chan error, 1)
				go func() { _, err := d.Provision(t.Context(), a); done <- err }()
				drivertest.Eventually(t, func() error {
					if at := w.list(t, "postgres", "SELECT query FROM pg_stat_activity WHERE application_name = 'stoker' AND datname = 'waits'"); len(at) == 0 {
						return errors.New("the administrator isn't there yet")
					}
					return nil
				})
				select {
				case err := <-done:
					t.Errorf("it has not waited: %v", err)
				case <-time.After(200 * time.Millisecond):
				}
				check(t, tx.Commit(t.Context()))
				check(t, <-done)
				if _, err := conn.Exec(t.Context(), test.late, pgx.QueryExecModeSimpleProtocol); !denied(err) {
					t.Errorf("later: %v", err)
				}
				if rows := w.list(t, "waits", "SELECT name FROM public.kine"); !slices.Equal(rows, []string{"within"}) {
					t.Errorf("there is %q", rows)
				}
				a.ReadOnly = false
				_, err = d.Provision(t.Context(), a)
				check(t, err)
				if _, err := conn.Exec(t.Context(), test.late, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Error(err)
				}
				_, err = d.Drop(t.Context(), a)
				check(t, err)
			})
		}
	}
}
