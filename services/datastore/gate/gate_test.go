package gate_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
	"github.com/stoker-k8s/stoker/services/datastore/gate"
	"github.com/stoker-k8s/stoker/services/datastore/move"
)

// TestGate moves data under a gate, and looks at what it does step by step.
func TestGate(t *testing.T) {
	ctx := t.Context()
	m := newMoving(t)
	socket, end := m.gate(t, "pod-1")
	c := client(t, socket)
	before, err := create(ctx, c, "/registry/configmaps/default/a", "1")
	must(t, err)
	lease, err := c.Grant(ctx, 3600)
	must(t, err)
	_, err = create(ctx, c, "/registry/events/default/a", "1", clientv3.WithLease(lease.ID))
	must(t, err)
	watched := c.Watch(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithRev(before+1))
	must(t, m.move.Copy(ctx))

	t.Run("the API server's keys are the tenant's in the store", func(t *testing.T) {
		got, err := m.from.server.Root.Get(ctx, "/tenant_a/configmaps/default/a")
		must(t, err)
		if len(got.Kvs) != 1 {
			t.Error("it isn't there")
		}
		all, err := c.Get(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithLimit(1))
		must(t, err)
		if len(all.Kvs) != 1 || !strings.HasPrefix(string(all.Kvs[0].Key), "/registry/") {
			t.Errorf("got %v", all.Kvs)
		}
	})
	t.Run("going over waits for as many gates as there should be, and else leaves the data where they are", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := m.move.GoOver(short, 2); err == nil {
			t.Error("it went over with one gate of two")
		}
		must(t, m.move.Take(ctx))
		must(t, m.move.Begin(ctx))
		_, err := create(ctx, c, "/registry/configmaps/default/b", "1")
		must(t, err)
		must(t, m.move.Copy(ctx))
	})
	t.Run("a store that is sealed has writes wait, until they are refused", func(t *testing.T) {
		must(t, m.from.seal(true)(ctx))
		_, err := create(ctx, c, "/registry/configmaps/default/refused", "1")
		if err == nil || !strings.Contains(err.Error(), "move to another DataStore") {
			t.Errorf("got %v", err)
		}
		must(t, m.from.seal(false)(ctx))
		_, err = create(ctx, c, "/registry/configmaps/default/c", "1")
		must(t, err)
	})
	t.Run("the data move, and writes go on", func(t *testing.T) {
		held, err := m.move.GoOver(ctx, 1)
		must(t, err)
		t.Logf("writes were held for %s", held)
		after, err := create(ctx, c, "/registry/configmaps/default/after", "1")
		must(t, err)
		if after <= before {
			t.Errorf("revision %d after %d", after, before)
		}
		got, err := m.to.server.Root.Get(ctx, "/tenant_b/configmaps/", clientv3.WithPrefix())
		must(t, err)
		if len(got.Kvs) != 4 {
			t.Errorf("%d objects", len(got.Kvs))
		}
	})
	t.Run("what names a revision of before hears that it is too old", func(t *testing.T) {
		if _, err := c.Get(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithRev(before)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("a list got %v", err)
		}
		for r := range watched {
			if r.Err() != nil {
				if r.CompactRevision == 0 {
					t.Errorf("a watch got %v", r.Err())
				}
				break
			}
		}
		if r := <-c.Watch(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithRev(before)); r.CompactRevision == 0 {
			t.Errorf("another watch got %v", r)
		}
	})
	t.Run("a watch from now on works", func(t *testing.T) {
		now, err := c.Get(ctx, "/registry/configmaps/default/a")
		must(t, err)
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		again := c.Watch(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))
		_, err = create(ctx, c, "/registry/configmaps/default/watched", "1")
		must(t, err)
		if r := <-again; len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "/registry/configmaps/default/watched" {
			t.Errorf("got %v", r)
		}
	})
	t.Run("a lease of before goes on", func(t *testing.T) {
		_, err := create(ctx, c, "/registry/events/default/b", "1", clientv3.WithLease(lease.ID))
		must(t, err)
		got, err := m.to.server.Root.Get(ctx, "/tenant_b/events/default/b")
		must(t, err)
		left, err := m.to.server.Root.TimeToLive(ctx, clientv3.LeaseID(got.Kvs[0].Lease))
		must(t, err)
		if left.TTL < 3000 || left.TTL > 3600 {
			t.Errorf("%d seconds are left of 3600", left.TTL)
		}
	})
	t.Run("another gate, and one that begins again, know where the data are", func(t *testing.T) {
		end()
		must(t, m.from.seal(false)(ctx)) // as it must not matter any more
		for _, pod := range []string{"pod-1", "pod-2"} {
			socket, _ := m.gate(t, pod)
			got, err := client(t, socket).Get(ctx, "/registry/configmaps/default/after")
			must(t, err)
			if len(got.Kvs) != 1 {
				t.Errorf("%s reads the former store", pod)
			}
		}
	})
}

// TestTakenOver has two processes work on one move.
func TestTakenOver(t *testing.T) {
	ctx := t.Context()
	m := newMoving(t)
	socket, _ := m.gate(t, "pod-1")
	c := client(t, socket)
	_, err := create(ctx, c, "/registry/configmaps/default/a", "1")
	must(t, err)
	must(t, m.move.Copy(ctx))

	other := &move.Move{ID: id, What: what, From: m.from.data, To: m.to.data, Seal: m.move.Seal, Unseal: m.move.Unseal}
	t.Cleanup(other.Close)
	m.move.Seal = func(ctx context.Context) error {
		// Here the process is paused, and another one takes the move over.
		return errors.Join(m.from.seal(true)(ctx), other.Take(ctx), other.Unseal(ctx), other.Begin(ctx))
	}
	if _, err := m.move.GoOver(ctx, 1); !errors.Is(err, move.ErrSuperseded) {
		t.Errorf("who was overtaken got %v", err)
	}
	_, err = create(ctx, c, "/registry/configmaps/default/b", "1")
	must(t, err)
	must(t, other.To.Clear(ctx))
	must(t, other.Copy(ctx))
	_, err = other.GoOver(ctx, 1)
	must(t, err)
	got, err := c.Get(ctx, "/registry/configmaps/", clientv3.WithPrefix())
	must(t, err)
	if len(got.Kvs) != 2 {
		t.Errorf("%d objects", len(got.Kvs))
	}
	for who, one := range map[string]*move.Move{"who comes late": m.move, "who has forgotten which move it is": {ID: "another", What: what, To: m.to.data}} {
		if err := one.Take(ctx); !errors.Is(err, move.ErrMoved) {
			t.Errorf("%s got %v", who, err)
		}
	}
	unlike := &move.Move{ID: "another", What: "other data", To: m.to.data}
	must(t, unlike.Take(ctx))
}

// TestOneStore has both DataStores be one database.
func TestOneStore(t *testing.T) {
	ctx := t.Context()
	one := newSide(t, "tenant_a")
	must(t, one.data.Import(ctx, func(yield func(driver.Change, error) bool) {
		yield(driver.Change{Key: "configmaps/default/a", Value: []byte("1")}, nil)
	}))
	m := &move.Move{ID: id, From: one.data, To: one.data, Seal: one.seal(true), Unseal: one.seal(false)}
	must(t, m.Take(ctx))
	if err := m.Begin(ctx); !errors.Is(err, move.ErrSame) {
		t.Errorf("got %v", err)
	}
}

// TestStoreAway starts a gate while the store that the data go to is away, and ends the other one while writes are held.
func TestStoreAway(t *testing.T) {
	ctx := t.Context()
	m := newMoving(t)
	must(t, m.move.Copy(ctx))
	m.to.server.Kill(t)
	socket, _ := m.gate(t, "pod-1")
	c := client(t, socket)
	_, err := create(ctx, c, "/registry/configmaps/default/a", "1")
	must(t, err)
	m.to.server.Run(t)
	drivertest.Eventually(t, func() error { return m.move.Take(ctx) })
	must(t, m.move.Begin(ctx))
	must(t, m.move.Copy(ctx))
	m.move.Seal = func(ctx context.Context) error {
		m.from.server.Kill(t)
		return errors.New("the store is away")
	}
	m.move.Unseal = func(context.Context) error {
		m.from.server.Run(t)
		return nil
	}
	if _, err := m.move.GoOver(ctx, 1); err == nil {
		t.Error("it went over without the store")
	}
	drivertest.Eventually(t, func() error {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := create(asking, c, "/registry/configmaps/default/b", "1")
		return err
	})
}

// TestSomeResourcesMove has what is asked by one socket go over, and nothing else.
func TestSomeResourcesMove(t *testing.T) {
	ctx := t.Context()
	m := newMoving(t)
	own, moving := filepath.Join(m.dir, "own"), filepath.Join(m.dir, "moving")
	run(t, gate.Config{
		Listen: own, Move: id, Name: "pod-1", From: m.from.store, To: m.to.store, Moving: moving, Through: map[string][]string{moving: m.from.store.Endpoints},
	})
	secrets := func(key string) bool { return strings.HasPrefix(key, "secrets/") }
	m.move.From, m.move.To = move.Part(m.from.data, secrets), move.Part(m.to.data, secrets)
	stays, goes := client(t, own), client(t, moving)
	for _, n := range []string{"a", "b"} {
		_, err := create(ctx, stays, "/registry/configmaps/default/"+n, "1")
		must(t, err)
		_, err = create(ctx, goes, "/registry/secrets/default/"+n, "1")
		must(t, err)
	}
	before, err := goes.Get(ctx, "/registry/secrets/default/a")
	must(t, err)
	must(t, m.move.Copy(ctx))
	m.move.Seal = func(ctx context.Context) error {
		a := m.from.account
		a.ReadOnly, a.ReadOnlyOf = true, "secrets/"
		_, err := m.from.driver.Provision(ctx, a)
		return err
	}
	_, err = m.move.GoOver(ctx, 1)
	must(t, err)
	after, err := create(ctx, goes, "/registry/secrets/default/after", "1")
	must(t, err)
	if after <= before.Header.Revision {
		t.Errorf("revision %d after %d", after, before.Header.Revision)
	}
	_, err = create(ctx, stays, "/registry/configmaps/default/after", "1")
	must(t, err)
	for prefix, test := range map[string]struct {
		side *side
		want int64
	}{"/tenant_a/configmaps/": {m.from, 3}, "/tenant_a/secrets/": {m.from, 2}, "/tenant_b/configmaps/": {m.to, 0}, "/tenant_b/secrets/": {m.to, 3}} {
		have, err := test.side.server.Root.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		must(t, err)
		if have.Count != test.want {
			t.Errorf("%s: %d keys, not %d", prefix, have.Count, test.want)
		}
	}
}

// TestThrough passes on what is asked of other etcds, whatever is counted and moved of the tenant's own.
func TestThrough(t *testing.T) {
	ctx := t.Context()
	m := newMoving(t)
	server := etcdserver.StartWith(t, m.from.server.CA, "127.0.0.1")
	d, err := etcd.Open(server.Config(t))
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	_, err = d.Provision(ctx, m.from.account)
	must(t, err)
	own, through := filepath.Join(m.dir, "own"), filepath.Join(m.dir, "through")
	run(t, gate.Config{
		Listen: own, Move: id, Name: "pod-1", From: m.from.store, To: m.to.store, Quota: gate.Quota{Objects: 1},
		Through: map[string][]string{through: {"https://" + server.Endpoint}},
	})
	c := client(t, through)
	watched := c.Watch(ctx, "/registry/events/", clientv3.WithPrefix())
	for _, n := range []string{"a", "b", "c"} {
		_, err := create(ctx, c, "/registry/events/default/"+n, "1")
		must(t, err)
	}
	if r := <-watched; len(r.Events) == 0 || !strings.HasPrefix(string(r.Events[0].Kv.Key), "/registry/events/") {
		t.Errorf("the watch got %v", r)
	}
	must(t, m.move.Copy(ctx))
	_, err = m.move.GoOver(ctx, 1)
	must(t, err)
	_, err = create(ctx, c, "/registry/events/default/after", "1")
	must(t, err)
	for what, test := range map[string]struct {
		c      *clientv3.Client
		prefix string
		want   int64
	}{
		"the other etcd":         {server.Root, "/tenant_a/events/", 4},
		"the tenant's own":       {m.from.server.Root, "/tenant_a/events/", 0},
		"where that goes":        {m.to.server.Root, "/tenant_b/events/", 0},
		"the socket of another":  {c, "/registry/events/", 4},
		"the tenant's by a gate": {client(t, own), "/registry/events/", 0},
	} {
		have, err := test.c.Get(ctx, test.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		must(t, err)
		if have.Count != test.want {
			t.Errorf("%s has %d Events, not %d", what, have.Count, test.want)
		}
	}
}
