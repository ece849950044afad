package datastore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// etcdStore makes the DataStore of an etcd.
func (in *installation) etcdStore(n string, server *etcdserver.Server) {
	in.t.Helper()
	c := server.Config(in.t)
	content := func(b []byte) v1alpha1.ContentRef { return v1alpha1.ContentRef{Content: b} }
	in.dataStore(n, v1alpha1.DataStoreSpec{Driver: v1alpha1.DriverEtcd, Endpoints: c.Endpoints, TLSConfig: &v1alpha1.TLSConfig{
		CertificateAuthority: v1alpha1.CertKeyPair{Certificate: content(c.CA), PrivateKey: new(content(c.CAKey))},
		ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: content(c.ClientCert), PrivateKey: content(c.ClientKey)},
	}})
}

// pods tells, as workload would, how the tenant's pods stand and which DataStores of overrides they use.
func (x *tenant) pods(step string, overrides ...string) {
	x.installation.t.Helper()
	x.workload(step, state.Workload{Overrides: overrides})
}

func (x *tenant) workload(step string, w state.Workload) {
	x.installation.t.Helper()
	msg := nats.NewMsg("$KV." + x.key.Bucket() + ".workload")
	msg.Data = event.Marshal(state.State{
		UID: x.spec.UID, Generation: x.spec.Generation, Step: step, Data: event.Marshal(w),
		UpdatedAt: time.Now().Add(time.Minute), // after the fact below, which it is never older than
	})
	_, err := x.bus[name.ServiceWorkload].JetStream().PublishMsg(x.installation.t.Context(), msg)
	x.must(err)
	x.tell(name.ServiceWorkload, step, event.WorkloadAvailable{About: x.about()})
}

// next returns the next fact of a kind about a tenant.
func next[T any](x *tenant, what string) (v T) {
	x.installation.t.Helper()
	x.await(what, &v)
	return v
}

// holds lists what an etcd holds of an account: keys, role and user, and on whose record.
func holds(t *testing.T, server *etcdserver.Server, schema, user string) (held []string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{"/" + schema + "/", "stoker.dev/owner/"} {
		got, err := server.Root.Get(t.Context(), from, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		must(err)
		for _, kv := range got.Kvs {
			if key := string(kv.Key); strings.Contains(key, "/"+schema) || strings.HasSuffix(key, "/"+user) {
				held = append(held, key)
			}
		}
	}
	users, err := server.Root.UserList(t.Context())
	must(err)
	roles, err := server.Root.RoleList(t.Context())
	must(err)
	if slices.Contains(users.Users, user) {
		held = append(held, "user")
	}
	if slices.Contains(roles.Roles, schema) {
		held = append(held, "role")
	}
	return held
}

// overridden is a tenant in a DataStore, with overrides, resource#DataStore.
func (in *installation) overridden(n, dataStore string, overrides ...string) *tenant {
	in.t.Helper()
	x := in.tenant(n)
	x.t.Spec.DataStore = dataStore
	for _, o := range overrides {
		resource, elsewhere, _ := strings.Cut(o, "#")
		x.t.Spec.DataStoreOverrides = append(x.t.Spec.DataStoreOverrides, v1alpha1.DataStoreOverride{Resource: resource, DataStore: elsewhere})
	}
	return x
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	a := etcdserver.Start(t)
	b := etcdserver.StartWith(t, a.CA, "127.0.0.1")
	away := etcdserver.StartWith(t, a.CA, "127.0.0.1")
	stranger := etcdserver.Start(t)
	in := install(t)
	in.etcdStore("joint-a", a)
	in.etcdStore("joint-b", b)
	in.etcdStore("joint-away", away)
	in.etcdStore("joint-alias", a)
	in.etcdStore("joint-stranger", stranger)
	in.etcdStore("joint-b-alias", b)
	in.etcdStore("joint-free", etcdserver.StartWith(t, a.CA, "127.0.0.1"))
	stop := in.run()
	defer func() { stop() }()
	ctx := t.Context()
	tenantOf := func(n string, overrides ...string) *tenant { return in.overridden(n, "joint-a", overrides...) }
	demo := tenantOf("demo", "/events#joint-b", "/pods#joint-a")
	schema, user := demo.account().Schema, demo.account().User
	put := func(t *testing.T, server *etcdserver.Server, x *tenant, key string) error {
		t.Helper()
		s, err := x.secret(name.DatastoreCertificate(x.key.Name))
		in.must(err)
		_, err = server.Connect(t, s.Data["server.crt"], s.Data["server.key"]).Put(ctx, key, "1")
		return err
	}

	t.Run("a tenant has its account in both, and by one certificate reaches its own keys alone", func(t *testing.T) {
		demo.accept()
		provisioned := next[event.DatastoreProvisioned](demo, event.Provisioned)
		if !slices.Equal(provisioned.Overrides, []string{"joint-b"}) {
			t.Errorf("%+v", provisioned)
		}
		_, d := demo.state()
		if len(d.Overrides) != 1 || !slices.Equal(d.Overrides[0].Resources, []string{"/events"}) ||
			!slices.Equal(d.Overrides[0].Endpoints, []string{b.Endpoint}) || d.Overrides[0].Account == "" {
			t.Errorf("%+v", d.Overrides)
		}
		for _, server := range []*etcdserver.Server{a, b} {
			if err := put(t, server, demo, "/"+schema+"/registry/events/e"); err != nil {
				t.Error(err)
			}
			if err := put(t, server, demo, "/"+schema+"2/registry/events/e"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("and others: %v", err)
			}
		}
	})
	// These take their time, and others meanwhile.
	drifts, half, waits := tenantOf("drifts", "/events#joint-b"), tenantOf("half", "/events#joint-away"), tenantOf("waits", "/events#joint-away")
	for _, x := range []*tenant{drifts, half} {
		x.accept()
		next[event.DatastoreProvisioned](x, event.Provisioned)
	}
	undrifted := holds(t, b, drifts.account().Schema, drifts.account().User)
	_, err := b.Root.UserDelete(ctx, drifts.account().User)
	in.must(err)
	away.Kill(t)
	waits.accept()
	half.remove()

	t.Run("one of another authority is refused, and says what to do", func(t *testing.T) {
		x := tenantOf("stray", "/events#joint-stranger")
		x.accept()
		failed := next[event.StepFailed](x, event.Failed)
		if failed.Reason != "OverrideAuthority" || failed.Retrying || !strings.Contains(failed.Message, "joint-stranger") || !strings.Contains(failed.Message, "give both") {
			t.Errorf("%+v", failed)
		}
		x.t.Spec.DataStoreOverrides = nil
		x.spec.Generation++
		x.accept()
		next[event.DatastoreProvisioned](x, event.Provisioned)
	})
	t.Run("who had a user's name in one of them keeps others from getting its certificate", func(t *testing.T) {
		first, second := tenantOf("first"), tenantOf("second", "/events#joint-b")
		first.t.Spec.DataStore = "joint-b"
		first.t.Setup, second.t.Setup = state.Account{Schema: "had", User: "wanted"}, state.Account{Schema: "had-too", User: "wanted"} // in Kamaji
		first.accept()
		next[event.DatastoreProvisioned](first, event.Provisioned)
		second.accept()
		failed := next[event.StepFailed](second, event.Failed)
		if failed.Reason != "UserTaken" || !strings.Contains(failed.Message, "DataStore joint-b") {
			t.Errorf("%+v", failed)
		}
		if _, err := second.secret(name.DatastoreCertificate("second")); !apierrors.IsNotFound(err) {
			t.Errorf("it has its certificate: %v", err)
		}
	})
	t.Run("a user's name that is another's in another etcd of the authority, or was, opens nothing of the other's", func(t *testing.T) {
		victim, thief := tenantOf("victim"), tenantOf("thief")
		thief.t.Spec.DataStore = "joint-b"
		victim.t.Spec.DataStoreUsername, victim.t.Spec.DataStoreSchema = "victim", "of-the-victim"
		victim.accept()
		has := next[event.DatastoreProvisioned](victim, event.Provisioned)
		former, err := victim.secret(name.DatastoreCertificate("victim"))
		in.must(err)
		const key = "/of-the-victim/registry/secrets/s"
		in.must(put(t, a, victim, key))
		for _, asked := range []string{"victim", has.User} {
			thief.t.Spec.DataStoreUsername = asked
			thief.spec.UID += asked
			thief.accept()
			next[event.DatastoreProvisioned](thief, event.Provisioned)
			in.must(put(t, b, thief, "/"+thief.account().Schema+"/registry/secrets/s"))
			if err := put(t, a, thief, key); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("one who asked for the user %s in another etcd writes the victim's keys: %v", asked, err)
			}
			thief.remove()
			next[event.Removals](thief, event.Removed)
			thief.t.Deleting = false
		}
		victim.remove()
		next[event.Removals](victim, event.Removed)
		victim.spec.UID, victim.t.Deleting = "uid-of-victim-anew", false
		victim.accept()
		next[event.DatastoreProvisioned](victim, event.Provisioned)
		in.must(put(t, a, victim, key))
		if _, err := a.Connect(t, former.Data["server.crt"], former.Data["server.key"]).Get(ctx, key); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("the certificate of a tenant that was deleted reads the keys of its successor: %v", err)
		}
	})
	t.Run("an override that goes leaves nothing, once no pod uses it", func(t *testing.T) {
		demo.pods(event.Available, "joint-b")
		demo.t.Spec.DataStoreOverrides = nil
		demo.spec.Generation = 2
		demo.accept()
		provisioned := next[event.DatastoreProvisioned](demo, event.Provisioned)
		if len(provisioned.Overrides) > 0 {
			t.Errorf("%+v", provisioned)
		}
		// The pods of before are still there.
		demo.pods(event.Available, "joint-b")
		demo.spec.Generation = 3
		demo.accept()
		next[event.DatastoreProvisioned](demo, event.Provisioned)
		if held := holds(t, b, schema, user); len(held) != 5 {
			t.Errorf("pods use it, and it holds %q", held)
		}
		before := holds(t, a, schema, user)
		demo.pods(event.Slept)
		withdrawn := next[event.DatastoreWithdrawn](demo, event.Withdrawn)
		if fmt.Sprint(withdrawn.DataStores, withdrawn.Removed) != "[joint-b] map[Key:1 Owner:2 Role:1 User:1]" || len(withdrawn.Left) > 0 {
			t.Errorf("%+v", withdrawn)
		}
		if held := holds(t, b, schema, user); len(held) > 0 {
			t.Errorf("left: %q", held)
		}
		if _, d := demo.state(); len(d.Overrides) > 0 || !slices.Equal(before, holds(t, a, schema, user)) {
			t.Errorf("%+v, %q became %q", d.Overrides, before, holds(t, a, schema, user))
		}
	})
	t.Run("when the state is lost, the record says where there may be something", func(t *testing.T) {
		x := tenantOf("lost", "/events#joint-b")
		x.accept()
		next[event.DatastoreProvisioned](x, event.Provisioned)
		in.must(in.bus[name.ServiceIntake].Forget(ctx, x.key))
		in.must(in.bus[name.ServiceIntake].CreateBucket(ctx, x.key))
		x.t.Annotations = map[string]string{name.AnnotationDatastoreOverrides: "joint-b"}
		x.t.Spec.DataStoreOverrides = nil
		x.spec.Generation++
		x.accept()
		x.pods(event.Available)
		next[event.DatastoreWithdrawn](x, event.Withdrawn)
		if held := holds(t, b, x.account().Schema, x.account().User); len(held) > 0 {
			t.Errorf("left: %q", held)
		}
	})
	t.Run("a DataStore that is another name of the tenant's own takes nothing with it", func(t *testing.T) {
		x := tenantOf("twice", "/events#joint-alias")
		x.accept()
		next[event.DatastoreProvisioned](x, event.Provisioned)
		in.must(put(t, a, x, "/"+x.account().Schema+"/registry/a"))
		before := holds(t, a, x.account().Schema, x.account().User)
		x.t.Spec.DataStoreOverrides = nil
		x.spec.Generation++
		x.accept()
		next[event.DatastoreProvisioned](x, event.Provisioned)
		x.pods(event.Available)
		withdrawn := next[event.DatastoreWithdrawn](x, event.Withdrawn)
		if after := holds(t, a, x.account().Schema, x.account().User); !slices.Equal(before, after) || len(withdrawn.Removed) > 0 {
			t.Errorf("%q became %q: %+v", before, after, withdrawn)
		}
	})
	t.Run("what overrides have against a move is said before it, and by a tenant that is to move all the same", func(t *testing.T) {
		x := tenantOf("moves", "/events#joint-b")
		x.accept()
		next[event.DatastoreProvisioned](x, event.Provisioned)
		for to, want := range map[string]string{
			"joint-b": "by dataStoreOverrides of now or before", "joint-b-alias": "are one database", "joint-stranger": "is no etcd of the same certificateAuthority", "joint-free": "",
		} {
			r := event.MoveReply{}
			in.must(ask(in, event.QueryMove, event.MoveQuery{Query: event.Query{Namespace: x.namespace, Name: x.key.Name}, DataStore: to}, &r))
			i := slices.IndexFunc(r.Findings, func(f event.MoveFinding) bool { return f.What == reason.OverridesSet })
			if (i < 0) != (want == "") || i >= 0 && (!r.Blocked || !strings.Contains(r.Findings[i].Message, want)) {
				t.Errorf("to %s: %+v", to, r.Findings)
			}
		}
		x.t.Spec.DataStore = "joint-b"
		x.spec.Generation++
		x.accept()
		if failed := next[event.StepFailed](x, event.Failed); failed.Reason != reason.MigrationNotSupported || failed.Retrying || !strings.Contains(failed.Message, "dataStoreOverrides") {
			t.Errorf("%+v", failed)
		}
	})
	t.Run("deletion leaves nothing in either", func(t *testing.T) {
		x := tenantOf("both", "/events#joint-b")
		x.accept()
		next[event.DatastoreProvisioned](x, event.Provisioned)
		for _, server := range []*etcdserver.Server{a, b} {
			in.must(put(t, server, x, "/"+x.account().Schema+"/registry/a"))
		}
		x.remove()
		removed := next[event.Removals](x, event.Removed)
		want := map[string]int{"workload/Deployment": 1, "datastore/Key": 2, "datastore/Role": 2, "datastore/User": 2, "datastore/Owner": 4, "datastore/Secret": 2}
		if fmt.Sprint(removed.Removed) != fmt.Sprint(want) || len(removed.Left) > 0 {
			t.Errorf("%+v", removed)
		}
		for _, server := range []*etcdserver.Server{a, b} {
			if held := holds(t, server, x.account().Schema, x.account().User); len(held) > 0 {
				t.Errorf("left: %q", held)
			}
		}
	})
	t.Run("what somebody changes in the other one is put right", func(t *testing.T) {
		drivertest.Eventually(t, func() error {
			if now := holds(t, b, drifts.account().Schema, drifts.account().User); !slices.Equal(now, undrifted) {
				return fmt.Errorf("held %q, holds %q", undrifted, now)
			}
			return nil
		})
	})
	t.Run("while the other one is away, a deletion waits a while, and says what it left there", func(t *testing.T) {
		removed, account := event.Removals{}, half.account()
		drivertest.Eventually(t, func() error {
			s, _ := half.state()
			if s.Step != event.Removed {
				return fmt.Errorf("is %s: %+v", s.Step, s.Failure)
			}
			return json.Unmarshal(s.Facts[len(s.Facts)-1].Data, &removed)
		})
		if len(removed.Left) != 1 || !strings.HasPrefix(removed.Left[0], "left in DataStore joint-away: keys from /"+account.Schema+"/") ||
			removed.Removed["datastore/User"] != 1 || removed.Removed["datastore/Owner"] != 2 || removed.Removed["datastore/Secret"] != 2 {
			t.Errorf("%+v", removed)
		}
		if held := holds(t, a, account.Schema, account.User); len(held) > 0 {
			t.Errorf("left: %q", held)
		}
	})
	t.Run("new tenants wait for it, and go on when it is back", func(t *testing.T) {
		if s, _ := waits.state(); s.Step != "" {
			t.Errorf("%+v", s)
		}
		away.Run(t)
		next[event.DatastoreProvisioned](waits, event.Provisioned)
		if held := holds(t, away, waits.account().Schema, waits.account().User); len(held) != 4 {
			t.Errorf("it holds %q", held)
		}
	})
}
