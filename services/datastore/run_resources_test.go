package datastore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// TestResourcesMove: what overrides name moves to where they say, and the rest stays.
func TestResourcesMove(t *testing.T) {
	t.Parallel()
	a := etcdserver.Start(t)
	b, c := etcdserver.StartWith(t, a.CA, "127.0.0.1"), etcdserver.StartWith(t, a.CA, "127.0.0.1")
	in := install(t)
	in.etcdStore("apart-a", a)
	in.etcdStore("apart-b", b)
	in.etcdStore("apart-c", c)
	in.etcdStore("apart-b-alias", b)
	stop := in.run()
	defer func() { stop() }()
	x := in.overridden("demo", "apart-a", "coordination.k8s.io/leases#apart-b")
	x.accept()
	provisioned := next[event.DatastoreProvisioned](x, event.Provisioned)
	prefix := "/" + provisioned.Schema + "/"
	put := func(server *etcdserver.Server, key string) error {
		t.Helper()
		s, err := x.secret(name.DatastoreCertificate("demo"))
		in.must(err)
		_, err = server.Connect(t, s.Data["server.crt"], s.Data["server.key"]).Put(t.Context(), prefix+key, "1")
		return err
	}
	keeps := func(server *etcdserver.Server, want ...string) {
		t.Helper()
		have, err := server.Root.Get(t.Context(), prefix, clientv3.WithPrefix())
		in.must(err)
		var keys []string
		for _, kv := range have.Kvs {
			keys = append(keys, strings.TrimPrefix(string(kv.Key), prefix))
		}
		if !slices.Equal(keys, want) {
			t.Errorf("it keeps %q, not %q", keys, want)
		}
	}
	asks := func(overrides ...string) {
		t.Helper()
		x.t.Spec.DataStoreOverrides = nil
		for _, o := range overrides {
			resource, dataStore, _ := strings.Cut(o, "#")
			x.t.Spec.DataStoreOverrides = append(x.t.Spec.DataStoreOverrides, v1alpha1.DataStoreOverride{Resource: resource, DataStore: dataStore})
		}
		x.spec.Generation++
		x.accept()
	}
	following := func(from, to string) (id string) {
		t.Helper()
		drivertest.Eventually(t, func() error {
			s, own := x.state()
			if own.Move == nil || own.Move.From != from || own.Move.DataStore != to || own.Move.Phase != state.MoveFollowing {
				return fmt.Errorf("%+v %+v", s, own.Move)
			}
			id = own.Move.ID
			return nil
		})
		return id
	}
	rests := func() {
		t.Helper()
		drivertest.Eventually(t, func() error {
			if s, own := x.state(); own.Move != nil || s.Step != event.Provisioned || s.Generation != x.spec.Generation || s.Failed() {
				return fmt.Errorf("%+v %+v", s, own.Move)
			}
			return nil
		})
	}
	in.must(put(a, "configmaps/x"))
	in.must(put(a, "secrets/s"))
	in.must(put(b, "leases/l"))

	t.Run("from its own to another", func(t *testing.T) {
		asks("coordination.k8s.io/leases#apart-b", "/secrets#apart-b")
		id := following("apart-a", "apart-b")
		in.must(put(a, "secrets/late"))
		x.workload(event.Slept, state.Workload{Gate: id, Overrides: []string{"apart-b"}})
		if moved := next[event.DatastoreMigrated](x, event.Migrated); moved.From != "apart-a" || moved.To != "apart-b" || !slices.Equal(moved.Resources, []string{"/secrets"}) || moved.Keys != 2 {
			t.Errorf("%+v", moved)
		}
		if err := put(a, "secrets/too-late"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("what has moved is written where it was: %v", err)
		}
		in.must(put(a, "configmaps/y"))
		in.must(put(b, "secrets/after"))
		x.workload(event.Slept, state.Workload{Overrides: []string{"apart-b"}})
		rests()
		keeps(a, "configmaps/x", "configmaps/y")
		keeps(b, "leases/l", "secrets/after", "secrets/late", "secrets/s")
		_, own := x.state()
		if len(own.Overrides) != 1 || !slices.Equal(own.Overrides[0].Resources, []string{"/secrets", "coordination.k8s.io/leases"}) {
			t.Errorf("%+v", own.Overrides)
		}
		in.must(put(a, "secrets/again"))
		_, err := a.Root.Delete(t.Context(), prefix+"secrets/again")
		in.must(err)
	})
	t.Run("to where it is already by another name it doesn't, and says so", func(t *testing.T) {
		asks("coordination.k8s.io/leases#apart-b-alias", "/secrets#apart-b")
		if failed := next[event.StepFailed](x, event.Failed); failed.Reason != reason.MigrationNotSupported || !strings.Contains(failed.Message, "are one database: name the one") {
			t.Errorf("%+v", failed)
		}
	})
	t.Run("taken back it leaves nothing", func(t *testing.T) {
		asks("coordination.k8s.io/leases#apart-b", "/secrets#apart-c")
		following("apart-b", "apart-c")
		asks("coordination.k8s.io/leases#apart-b", "/secrets#apart-b")
		rests()
		keeps(b, "leases/l", "secrets/after", "secrets/late", "secrets/s")
		if held := holds(t, c, provisioned.Schema, provisioned.User); len(held) > 0 {
			t.Errorf("left: %q", held)
		}
	})
	t.Run("a service that ends goes on with it", func(t *testing.T) {
		asks("coordination.k8s.io/leases#apart-b", "/secrets#apart-c")
		id := following("apart-b", "apart-c")
		stop()
		stop = in.run()
		x.workload(event.Slept, state.Workload{Gate: id, Overrides: []string{"apart-b"}})
		next[event.DatastoreMigrated](x, event.Migrated)
		x.workload(event.Slept, state.Workload{Overrides: []string{"apart-b", "apart-c"}})
		rests()
		keeps(b, "leases/l")
		keeps(c, "secrets/after", "secrets/late", "secrets/s")
	})
	t.Run("back to its own, and nothing stays where it was", func(t *testing.T) {
		asks("/secrets#apart-c")
		x.workload(event.Slept, state.Workload{Gate: following("apart-b", "apart-a"), Overrides: []string{"apart-b", "apart-c"}})
		next[event.DatastoreMigrated](x, event.Migrated)
		x.workload(event.Slept, state.Workload{Overrides: []string{"apart-c"}})
		if gone := next[event.DatastoreWithdrawn](x, event.Withdrawn); !slices.Equal(gone.DataStores, []string{"apart-b"}) {
			t.Errorf("%+v", gone)
		}
		keeps(a, "configmaps/x", "configmaps/y", "leases/l")
		if held := holds(t, b, provisioned.Schema, provisioned.User); len(held) > 0 {
			t.Errorf("left: %q", held)
		}
	})
	t.Run("where all is forgotten, nothing takes the place of what is there", func(t *testing.T) {
		stop()
		lost := nats.NewMsg("$KV." + x.key.Bucket() + ".datastore")
		lost.Header.Set("KV-Operation", "PURGE")
		_, err := in.bus[name.ServiceDatastore].JetStream().PublishMsg(t.Context(), lost)
		in.must(err)
		x.t.Setup = state.Account{DataStore: "apart-a", Schema: provisioned.Schema, User: provisioned.User}
		x.t.Overridden = []v1alpha1.DataStoreOverride{}
		stop = in.run()
		x.accept()
		if failed := next[event.StepFailed](x, event.Failed); failed.Reason != reason.MigrationUndone || !strings.Contains(failed.Message, "has such objects already") {
			t.Errorf("%+v", failed)
		}
		keeps(c, "secrets/after", "secrets/late", "secrets/s", driver.MoveKey)
		asks()
		rests()
		keeps(c, "secrets/after", "secrets/late", "secrets/s", driver.MoveKey)
	})
}
