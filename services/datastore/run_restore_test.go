package datastore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// TestASourceThatIsMissing: it is said, and looked for again, also by a service that starts anew.
func TestASourceThatIsMissing(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t)
	in := install(t)
	in.etcdStore("cloned", server)
	stop := in.run()
	defer func() { stop() }()
	demo := in.tenant("demo")
	demo.t.Spec.DataStore = "cloned"
	demo.t.Annotations = map[string]string{name.AnnotationCloneOf: "original"}
	demo.accept()
	tries := 0
	tried := func() error {
		s, own := demo.state()
		if own.Restoring == nil || own.Restoring.Tries <= tries || s.Wait.Reason != reason.DataRestoring || !strings.Contains(s.Wait.Text, "there is no tenant") {
			return fmt.Errorf("%+v, %+v", s, own.Restoring)
		}
		tries = own.Restoring.Tries
		return nil
	}
	drivertest.Eventually(t, tried)
	stop()
	stop = in.run()
	drivertest.Eventually(t, tried)
}

// TestDataOfItsOwn: a tenant whose state is lost keeps its data, whatever its annotations say that they once came from.
func TestDataOfItsOwn(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t)
	in := install(t)
	in.etcdStore("restored", server)
	stop := in.run()
	demo := in.tenant("demo")
	demo.t.Spec.DataStore = "restored"
	demo.accept()
	provisioned := event.DatastoreProvisioned{}
	demo.await(event.Provisioned, &provisioned)
	s, err := demo.secret("demo-datastore-certificate")
	in.must(err)
	c, key := server.Connect(t, s.Data["server.crt"], s.Data["server.key"]), "/"+provisioned.Schema+"/registry/a"
	_, err = c.Put(t.Context(), key, "1")
	in.must(err)
	stop()

	lost := nats.NewMsg("$KV." + demo.key.Bucket() + ".datastore")
	lost.Header.Set("KV-Operation", "PURGE")
	_, err = in.bus[name.ServiceDatastore].JetStream().PublishMsg(t.Context(), lost)
	in.must(err)
	const from = "nowhere/default/demo/20261104T030000Z-4f2a9c"
	demo.t.Annotations = map[string]string{name.AnnotationRestoreFrom: from}
	stop = in.run()
	defer func() { stop() }()
	demo.accept()
	drivertest.Eventually(t, func() error {
		if s, own := demo.state(); s.Step != event.Provisioned || own.Restored != from || own.Restoring != nil {
			return fmt.Errorf("%+v, %+v", s, own)
		}
		return nil
	})
	if have, err := c.Get(t.Context(), key); err != nil || have.Count != 1 {
		t.Errorf("%v, %v", have, err)
	}
}

// TestLostWhileMoving: a tenant whose state is lost before its data have moved finds them where its object's status says that they are.
func TestLostWhileMoving(t *testing.T) {
	t.Parallel()
	a, b := etcdserver.Start(t), etcdserver.Start(t)
	in := install(t)
	in.etcdStore("lost-a", a)
	in.etcdStore("lost-b", b)
	stop := in.run()
	defer func() { stop() }()
	x := in.tenant("demo")
	x.t.Spec.DataStore = "lost-a"
	x.accept()
	provisioned := next[event.DatastoreProvisioned](x, event.Provisioned)
	key := "/" + provisioned.Schema + "/registry/a"
	_, err := a.Root.Put(t.Context(), key, "1")
	in.must(err)
	stop()
	lost := nats.NewMsg("$KV." + x.key.Bucket() + ".datastore")
	lost.Header.Set("KV-Operation", "PURGE")
	_, err = in.bus[name.ServiceDatastore].JetStream().PublishMsg(t.Context(), lost)
	in.must(err)
	stop = in.run()
	asks := func(to, besides string) {
		t.Helper()
		x.t.Spec.DataStore = to
		x.t.Annotations = map[string]string{name.AnnotationDatastoreOverrides: besides, name.AnnotationMigrationGrace: "0"}
		x.spec.Generation++
		x.accept()
	}
	moving := func(phase string) (id string) {
		t.Helper()
		drivertest.Eventually(t, func() error {
			_, own := x.state()
			if own.DataStore != "lost-a" || own.Move == nil || own.Move.DataStore != "lost-b" || own.Move.Phase != phase {
				return fmt.Errorf("%+v %+v", own, own.Move)
			}
			id = own.Move.ID
			return nil
		})
		return id
	}
	x.t.Setup = state.Account{DataStore: "lost-a", Schema: provisioned.Schema, User: provisioned.User}

	t.Run("the move begins anew, and is taken back without a trace", func(t *testing.T) {
		asks("lost-b", "lost-b")
		moving(state.MoveFollowing)
		x.pods(event.Available)
		asks("lost-a", "lost-b")
		x.pods(event.Available)
		if gone := next[event.DatastoreWithdrawn](x, event.Withdrawn); !slices.Equal(gone.DataStores, []string{"lost-b"}) {
			t.Errorf("%+v", gone)
		}
		if held := holds(t, b, provisioned.Schema, provisioned.User); len(held) > 0 {
			t.Errorf("left: %q", held)
		}
	})
	t.Run("it moves, and nothing of it stays where it was", func(t *testing.T) {
		asks("lost-b", "lost-b")
		x.workload(event.Slept, state.Workload{Gate: moving(state.MoveFollowing)})
		if moved := next[event.DatastoreMigrated](x, event.Migrated); moved.From != "lost-a" || moved.To != "lost-b" || moved.Keys != 1 {
			t.Errorf("%+v", moved)
		}
		x.workload(event.Slept, state.Workload{})
		asks("lost-b", "lost-a")
		x.workload(event.Slept, state.Workload{})
		if gone := next[event.DatastoreWithdrawn](x, event.Withdrawn); !slices.Equal(gone.DataStores, []string{"lost-a"}) {
			t.Errorf("%+v", gone)
		}
		if held := holds(t, a, provisioned.Schema, provisioned.User); len(held) > 0 {
			t.Errorf("left: %q", held)
		}
		if have, err := b.Root.Get(t.Context(), key); err != nil || have.Count != 1 {
			t.Errorf("%v, %v", have, err)
		}
	})
}
