package datastore_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// TestTransfer has a tenant go to another management cluster, whose part this one plays, too: there the tenant's object has another UID, its
// bucket is new, and its Secrets arrive after it.
func TestTransfer(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t)
	in := install(t)
	in.etcdStore("shared", server)
	in.etcdStore("shared-not", etcdserver.Start(t))
	defer in.run()()
	ctx := t.Context()
	config := name.DatastoreConfig("goes")
	of := func(uid string) *tenant {
		x := in.tenant("goes")
		x.ids = 100 * len(uid) // no fact of one has the ID of another's
		x.spec.UID, x.t.Spec.DataStore = uid, "shared"
		return x
	}
	data := func(x *tenant) map[string][]byte {
		t.Helper()
		s, err := x.secret(config)
		in.must(err)
		return s.Data
	}
	key := func(schema string) string { return "/" + schema + "/configmaps/x" }
	reads := func(x *tenant, schema string) {
		t.Helper()
		s, err := x.secret(name.DatastoreCertificate("goes"))
		in.must(err)
		drivertest.Eventually(t, func() error {
			got, err := server.Connect(t, s.Data["server.crt"], s.Data["server.key"]).Get(ctx, key(schema))
			if err == nil && got.Count != 1 {
				err = fmt.Errorf("%d keys", got.Count)
			}
			return err
		})
	}
	arrives := func(x *tenant, n string, data map[string][]byte) {
		t.Helper()
		yes := true
		in.must(in.kube.Create(ctx, kube.Secrets, &corev1.Secret{
			TypeMeta: kube.Secrets.TypeMeta(), Data: data,
			ObjectMeta: metav1.ObjectMeta{
				Namespace: in.namespace, Name: n, Labels: name.Labels(x.key.Name, name.ComponentDatastoreConfig, x.key.Partition()),
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: kube.TenantControlPlanes.GroupVersion.String(), Kind: kube.TenantControlPlanes.Kind, Name: x.key.Name,
					UID: types.UID(x.spec.UID), Controller: &yes,
				}},
			},
		}))
	}

	here := of("uid-here")
	here.accept()
	provisioned := next[event.DatastoreProvisioned](here, event.Provisioned)
	_, err := server.Root.Put(ctx, key(provisioned.Schema), "1")
	in.must(err)
	before := data(here)

	t.Run("its account is whose the token is", func(t *testing.T) {
		here.t.Transfer = "first"
		here.accept()
		passed := next[event.DatastorePassedOn](here, event.PassedOn)
		if passed.DataStore != "shared" || passed.Schema != provisioned.Schema || passed.User != provisioned.User {
			t.Errorf("%+v", passed)
		}
		now := data(here)
		if len(now[name.KeyTransferToken]) < 26 || string(now[name.KeyTransferDataStore]) != "shared" || !bytes.Equal(now[name.KeyDBPassword], before[name.KeyDBPassword]) {
			t.Errorf("%q", now)
		}
		if _, own := here.state(); own.PassedOn != "first" {
			t.Errorf("%+v", own)
		}
		reads(here, provisioned.Schema)
	})
	t.Run("given up, it is as before", func(t *testing.T) {
		here.t.Transfer = ""
		here.accept()
		if again := next[event.DatastoreProvisioned](here, event.Provisioned); again.Schema != provisioned.Schema || again.User != provisioned.User {
			t.Errorf("%+v", again)
		}
		if now := data(here); !maps.EqualFunc(now, before, bytes.Equal) {
			t.Errorf("%q", now)
		}
		reads(here, provisioned.Schema)
	})
	var sent map[string][]byte
	t.Run("what is deleted where it was takes nothing of it away", func(t *testing.T) {
		here.t.Transfer = "second"
		here.accept()
		next[event.DatastorePassedOn](here, event.PassedOn)
		sent = data(here)
		here.t.Transfer = ""
		here.remove()
		removed := next[event.Removals](here, event.Removed)
		if fmt.Sprint(removed.Removed) != fmt.Sprint(map[string]int{"workload/Deployment": 1, "datastore/Secret": 2}) || len(removed.Left) > 0 {
			t.Errorf("%+v", removed)
		}
		in.must(in.bus[name.ServiceIntake].Forget(ctx, here.key))
	})
	there := of("uid-there")
	there.t.Transfer = "second"
	t.Run("where it arrives nothing is made before its Secrets are there", func(t *testing.T) {
		there.accept()
		drivertest.Eventually(t, func() error {
			if s, _ := there.state(); s.Wait.Reason != reason.TransferArriving {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		arrives(there, config, sent)
		next[event.DatastorePassedOn](there, event.PassedOn)
	})
	t.Run("one that was given another DataStore waits for the right one", func(t *testing.T) {
		there.t.Transfer, there.t.Spec.DataStore = "", "shared-not"
		there.accept()
		if failed := next[event.StepFailed](there, event.Failed); failed.Reason != reason.TransferredElsewhere {
			t.Errorf("%+v", failed)
		}
		there.t.Spec.DataStore = "shared"
		there.spec.Generation++
	})
	t.Run("it has its data, and nobody else can take them", func(t *testing.T) {
		there.accept()
		if again := next[event.DatastoreProvisioned](there, event.Provisioned); again.Schema != provisioned.Schema || again.User != provisioned.User {
			t.Errorf("%+v", again)
		}
		if now := data(there); now[name.KeyTransferToken] != nil || !bytes.Equal(now[name.KeyDBPassword], before[name.KeyDBPassword]) {
			t.Errorf("%q", now)
		}
		reads(there, provisioned.Schema)
		thief := in.tenant("thief")
		thief.t.Spec.DataStore = "shared"
		arrives(thief, name.DatastoreConfig("thief"), sent)
		thief.accept()
		if failed := next[event.StepFailed](thief, event.Failed); failed.Reason != reason.SchemaTaken {
			t.Errorf("%+v", failed)
		}
		reads(there, provisioned.Schema)
	})
	t.Run("where all is forgotten, the database says that its account is its own", func(t *testing.T) {
		lost := nats.NewMsg("$KV." + there.key.Bucket() + ".datastore")
		lost.Header.Set("KV-Operation", "PURGE")
		_, err := in.bus[name.ServiceDatastore].JetStream().PublishMsg(ctx, lost)
		in.must(err)
		there.spec.Generation++
		there.accept()
		if again := next[event.DatastoreProvisioned](there, event.Provisioned); again.Schema != provisioned.Schema || again.User != provisioned.User {
			t.Errorf("%+v", again)
		}
		reads(there, provisioned.Schema)
	})
	t.Run("not while some of its data are elsewhere", func(t *testing.T) {
		there.t.Transfer, there.t.Spec.DataStoreOverrides = "third", []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "shared-not"}}
		there.spec.Generation++
		there.accept()
		if failed := next[event.StepFailed](there, event.Failed); failed.Reason != reason.NotTransferable {
			t.Errorf("%+v", failed)
		}
		there.t.Transfer, there.t.Spec.DataStoreOverrides = "", nil
		there.spec.Generation++
		there.accept()
		drivertest.Eventually(t, func() error {
			if s, _ := there.state(); s.Generation != there.spec.Generation || s.Step != event.Provisioned || s.Failed() {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	})
	t.Run("deleted where it is, all of it goes, also where its names are forgotten", func(t *testing.T) {
		lost := nats.NewMsg("$KV." + there.key.Bucket() + ".datastore")
		lost.Header.Set("KV-Operation", "PURGE")
		_, err := in.bus[name.ServiceDatastore].JetStream().PublishMsg(ctx, lost)
		in.must(err)
		there.remove()
		removed := next[event.Removals](there, event.Removed)
		if removed.Removed["datastore/Key"] != 1 || removed.Removed["datastore/User"] != 1 || len(removed.Left) > 0 {
			t.Errorf("%+v", removed)
		}
	})
}
