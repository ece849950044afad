package nats_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
)

// TestWhatIsDeletedGoes has a kine's bucket hold what there is, and not all that ever was.
func TestWhatIsDeletedGoes(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]natsserver.Options{"of many": {}, "the only one": {Users: natsserver.Users}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deletedGoes(t, natsserver.Start(t, options))
		})
	}
}

func deletedGoes(t *testing.T, server *natsserver.Server) {
	t.Helper()
	d := open(t, server.Config(t))
	now := time.Now()
	nats.SetNow(d, func() time.Time { return now })
	a := account("deletes")
	access := join(t, d, a)
	kine := drivertest.RunKine(t, access, func(credentials string) string { return endpoint(d, a, credentials) }, "--compact-interval=0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put := func(key string) int64 {
		t.Helper()
		done, err := kine.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "value")).Commit()
		check(t, err)
		if !done.Succeeded {
			t.Fatalf("%s is there", key)
		}
		return done.Header.Revision
	}
	remove := func(key string, at int64) {
		t.Helper()
		done, err := kine.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).Then(clientv3.OpDelete(key)).Else(clientv3.OpGet(key)).Commit()
		check(t, err)
		if !done.Succeeded {
			t.Fatalf("%s is another", key)
		}
	}
	// holds are the names of objects that the bucket has messages of.
	holds := func() []string {
		t.Helper()
		names := map[string]bool{}
		sizes, err := d.(driver.Sizer).Sizes(ctx)
		check(t, err)
		data, err := d.(driver.DataAccess).Data(ctx, a, access)
		check(t, err)
		defer func() { check(t, data.Close()) }()
		last, err := data.Revision(ctx)
		check(t, err)
		for c, err := range data.Follow(ctx, 0, last) {
			check(t, err)
			names[strings.TrimPrefix(c.Key, "configmaps/")] = true
		}
		t.Logf("it has %d of %d keys", len(names), sizes[a.Schema].Keys)
		return slices.Sorted(maps.Keys(names))
	}
	want := func(when string, names ...string) {
		t.Helper()
		if held := holds(); !slices.Equal(held, names) {
			t.Errorf("%s it holds %q", when, held)
		}
	}
	compact := func() {
		t.Helper()
		_, err := d.(driver.Compactor).Compact(ctx)
		check(t, err)
	}
	key := func(name string) string { return "/registry/configmaps/" + name }

	put(key("kept"))
	for i := range 100 {
		k := key(fmt.Sprintf("event-%02d", i))
		remove(k, put(k))
	}
	remove(key("again"), put(key("again")))
	put(key("again"))
	upTo := put(key("late"))
	remove(key("late"), upTo) // after what is compacted
	compact()
	compact()
	if held := holds(); len(held) != 103 {
		t.Errorf("before kine has compacted it holds %q", held)
	}
	_, err := kine.Client.Compact(ctx, upTo)
	check(t, err)
	now = now.Add(2 * time.Hour)
	compact() // notes how far kine has come
	if held := holds(); len(held) != 103 {
		t.Errorf("what may just be read is gone: %q", held)
	}
	compact()
	want("compacted,", "again", "kept", "late")
	got, err := kine.Client.Get(ctx, "/registry/configmaps/", clientv3.WithPrefix())
	check(t, err)
	if len(got.Kvs) != 2 {
		t.Errorf("kine has %v", got.Kvs)
	}

	t.Run("kine goes on with names that are gone", func(t *testing.T) {
		at := put(key("event-00"))
		kine.End(15)
		kine.Start(t)
		got, err := kine.Client.Get(ctx, key("event-00"))
		check(t, err)
		if len(got.Kvs) != 1 || got.Kvs[0].ModRevision != at || got.Kvs[0].CreateRevision != at {
			t.Errorf("there is %v", got.Kvs)
		}
		remove(key("event-00"), at)
		put(key("event-00"))
	})
	t.Run("an hour has to pass", func(t *testing.T) {
		at := put(key("next"))
		remove(key("next"), at)
		_, err := kine.Client.Compact(ctx, put(key("end")))
		check(t, err)
		compact()
		compact()
		want("before,", "again", "end", "event-00", "kept", "late", "next")
	})
	t.Run("data that move stay as they are", func(t *testing.T) {
		now = now.Add(2 * time.Hour)
		data, err := d.(driver.DataAccess).Data(ctx, a, access)
		check(t, err)
		defer func() { check(t, data.Close()) }()
		_, err = data.SetRecord(ctx, driver.MoveKey, driver.Move{ID: "id", Phase: driver.MoveOpen, Attempt: 1}.Encode(), 0)
		check(t, err)
		compact()
		compact()
		want("while they move,", "again", "end", "event-00", "kept", "late", "next")
		check(t, data.DeleteRecord(ctx, driver.MoveKey))
		compact() // notes how far kine has come since
		now = now.Add(2 * time.Hour)
		compact()
		want("later", "again", "end", "event-00", "kept")
	})
	t.Run("another bucket of that name has all of its own", func(t *testing.T) {
		kine.End(15)
		_, err := d.Drop(ctx, a)
		check(t, err)
		access = join(t, d, a)
		data, err := d.(driver.DataAccess).Data(ctx, a, access)
		check(t, err)
		_, err = data.Revision(ctx)
		check(t, err)
		check(t, data.Close())
		now = now.Add(2 * time.Hour)
		compact()
		compact()
		if sizes, err := d.(driver.Sizer).Sizes(ctx); err != nil || sizes[a.Schema].Keys == 0 {
			t.Errorf("%v: %v", sizes, err)
		}
	})
}
