package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/postgresserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// PostgreSQL counts a row when it is written, and shows it when the transaction ends.
func TestRowsThatBecomeVisibleLate(t *testing.T) {
	server := postgresserver.Start(t)
	d := open(t, server.Config())
	a := driver.Account{Owner: "uid", Schema: "late", User: "late", Password: "password"}
	_, err := d.Provision(t.Context(), a)
	check(t, err)
	access, err := d.Access(a, driver.Access{}, time.Now())
	check(t, err)
	src, err := d.(driver.DataAccess).Data(t.Context(), a, access)
	check(t, err)
	t.Cleanup(func() { check(t, src.Close()) })
	conn, watcher := server.Connect(t, postgresserver.Admin, postgresserver.Password, "late"), server.Connect(t, postgresserver.Admin, postgresserver.Password, "late")
	put := func(key string) {
		check(t, src.Import(t.Context(), func(yield func(driver.Change, error) bool) { yield(driver.Change{Key: key, Value: []byte("v")}, nil) }))
	}
	// write begins a write that goes on until the transaction is committed; others come after it and are seen before.
	write := func(key string) pgx.Tx {
		tx, err := conn.Begin(t.Context())
		check(t, err)
		_, err = tx.Exec(t.Context(), `INSERT INTO kine(name, created, deleted, create_revision, prev_revision, lease, value) VALUES($1, 1, 0, 0, 0, 0, 'v')`, "/registry/"+key)
		check(t, err)
		return tx
	}
	// noticed waits until kine, which asks for what is missing, waits for the transaction.
	noticed := func() {
		drivertest.Eventually(t, func() error {
			var n int
			err := watcher.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n)
			if err == nil && n == 0 {
				err = errors.New("nobody waits")
			}
			return err
		})
	}
	put("first")
	begin, err := src.Revision(t.Context())
	check(t, err)

	late := write("late")
	put("early")
	asked := make(chan int64)
	go func() {
		at, err := src.Revision(t.Context())
		if err != nil {
			t.Error(err)
		}
		asked <- at
	}()
	noticed()
	select {
	case at := <-asked:
		t.Errorf("revision %d is told before it is whole", at)
	default:
	}
	check(t, late.Commit(t.Context()))
	at := <-asked
	keys := func(changes func(func(driver.Change, error) bool), n int) (list []string) {
		for c, err := range changes {
			if err != nil {
				t.Error(err)
				break
			}
			if list = append(list, c.Key); len(list) == n {
				break
			}
		}
		return list
	}
	if got := fmt.Sprint(keys(src.Export(t.Context(), at), 0)); got != "[early first late]" {
		t.Errorf("exported %s", got)
	}
	if got := fmt.Sprint(keys(src.Follow(t.Context(), begin, at), 0)); got != "[late early]" {
		t.Errorf("followed %s", got)
	}

	// A follow that begins while one is written.
	late = write("later")
	put("earlier")
	followed := make(chan []string)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { followed <- keys(src.Follow(ctx, at, 0), 2) }()
	noticed()
	check(t, late.Commit(t.Context()))
	if got := fmt.Sprint(<-followed); got != "[later earlier]" {
		t.Errorf("followed %s", got)
	}
}
