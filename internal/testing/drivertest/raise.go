package drivertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Raise shows that revisions are raised and all before is compacted, on a new account and on one that was raised and cleared.
func Raise(t *testing.T, d driver.Driver) {
	opened, a := OpenData(t, d, "raised")
	for range 2 {
		above := revision(t, opened) + 5000
		closed(t, opened)
		raise(t, d, a, above)
		opened = again(t, d, a)
		at := revision(t, opened)
		if at <= above {
			t.Fatalf("the revision is %d, not above %d", at, above)
		}
		if r, ok := d.(driver.Revisioner); ok {
			if seen, err := r.Revision(t.Context(), a); err != nil || seen < at {
				t.Errorf("from outside, it is %d: %v", seen, err)
			}
		}
		Eventually(t, func() error { // a kine of NATS hears of it in a moment
			return refused(opened.Export(t.Context(), above))
		})
		for what, changes := range map[string]iter.Seq2[driver.Change, error]{
			"a follow of the last revision": opened.Follow(t.Context(), above-1, above),
			"a follow of the next one":      opened.Follow(t.Context(), above, 0),
		} {
			if err := refused(changes); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		equal(t, "export", exported(t, opened, at), Contents{})
		imported(t, opened, Plain(20).all())
		next := revision(t, opened)
		equal(t, "export of what was imported", exported(t, opened, next), Plain(20))
		became, n := followed(t, opened, Contents{}, at, next)
		if equal(t, "follow", became, Plain(20)); n != len(Plain(20)) {
			t.Errorf("%d changes", n)
		}
		closed(t, opened)
		raise(t, d, a, above)
		opened = again(t, d, a)
		equal(t, "export after the second raise", exported(t, opened, revision(t, opened)), Plain(20))
		if err := opened.Clear(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// RaiseKine shows that a real kine starts after a raise and goes on above it. dsn is that of Kine.
func RaiseKine(t *testing.T, d driver.Driver, dsn func(a driver.Account, credentials string) string) {
	opened, a := OpenData(t, d, "raised-kine")
	closed(t, opened)
	const above = 1_000_000_000_000
	access := raise(t, d, a, above)
	client := RunKine(t, access, func(credentials string) string { return dsn(a, credentials) }).Client
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if said := <-client.Watch(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithRev(above)); said.CompactRevision <= above {
			return fmt.Errorf("a watch from before says %v", said)
		}
		return nil
	})
	watched := client.Watch(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if said := <-watched; !said.Created {
		t.Fatalf("a watch says %v", said)
	}
	const key = "/registry/configmaps/default/a"
	done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "v")).Commit()
	if err != nil || !done.Succeeded {
		t.Fatalf("wrote %v: %v", done, err)
	}
	at := done.Header.Revision
	if at <= above || at > above+100 {
		t.Errorf("wrote at %d", at)
	}
	if said := <-watched; len(said.Events) != 1 || said.Events[0].Kv.ModRevision != at {
		t.Errorf("watched %v", said)
	}
	list, err := client.Get(ctx, "/registry/configmaps/", clientv3.WithPrefix())
	if err != nil || len(list.Kvs) != 1 || list.Kvs[0].ModRevision != at {
		t.Errorf("listed %v: %v", list, err)
	}
}

// raise raises the revisions of an account and returns its access.
func raise(t *testing.T, d driver.Driver, a driver.Account, above int64) driver.Access {
	t.Helper()
	access, err := d.Access(a, driver.Access{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := d.(driver.DataAccess).Raise(t.Context(), a, access, above); err != nil {
		t.Fatal(err)
	}
	t.Logf("raised in %s", time.Since(began).Round(time.Millisecond))
	return access
}

// refused is nil if the first that is yielded is driver.ErrCompacted.
func refused(changes iter.Seq2[driver.Change, error]) error {
	for ch, err := range changes {
		if errors.Is(err, driver.ErrCompacted) && !errors.Is(err, driver.ErrAway) {
			return nil
		}
		return fmt.Errorf("it yields %.100q, %w", ch.Key, err)
	}
	return errors.New("it is empty")
}

func closed(t *testing.T, d driver.Data) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
