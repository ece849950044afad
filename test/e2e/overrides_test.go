package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestOverrides keeps Leases and Events of a tenant in other etcds than the rest, which moves.
func TestOverrides(t *testing.T) {
	e.Services(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca, servers := etcdserver.NewAuthority(t, key), map[string]*etcdserver.Server{}
	for _, n := range []string{"first", "second", "third", "fourth"} {
		server := etcdserver.StartWith(t, ca, "127.0.0.2")
		servers[n] = server
		c := server.Config(t)
		content := func(b []byte) v1alpha1.ContentRef { return v1alpha1.ContentRef{Content: b} }
		o := &v1alpha1.DataStore{TypeMeta: kube.DataStores.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: n}}
		o.Spec = v1alpha1.DataStoreSpec{Driver: v1alpha1.DriverEtcd, Endpoints: c.Endpoints, TLSConfig: &v1alpha1.TLSConfig{
			CertificateAuthority: v1alpha1.CertKeyPair{Certificate: content(c.CA), PrivateKey: new(content(c.CAKey))},
			ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: content(c.ClientCert), PrivateKey: content(c.ClientKey)},
		}}
		must(t, e.Admin.Create(t.Context(), kube.DataStores, o))
	}
	for n := range servers {
		storeSays(t, n, v1alpha1.DataStoreConditionValid, metav1.ConditionTrue, v1alpha1.DataStoreReasonValid)
	}
	overriding := func(o *v1alpha1.TenantControlPlane, pairs ...string) *v1alpha1.TenantControlPlane {
		o.Spec.DataStore = "first"
		for _, pair := range pairs {
			resource, dataStore, _ := strings.Cut(pair, "#")
			o.Spec.DataStoreOverrides = append(o.Spec.DataStoreOverrides, v1alpha1.DataStoreOverride{Resource: resource, DataStore: dataStore})
		}
		return o
	}
	// resources are what an etcd holds of a tenant, by the first part of the keys.
	resources := func(t testing.TB, n string, key events.Key) []string {
		t.Helper()
		schema := "/" + read(t, key).Status.Storage.Setup.Schema + "/"
		got, err := servers[n].Root.Get(t.Context(), schema, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		must(t, err)
		var all []string
		for _, kv := range got.Kvs {
			resource, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), schema), "/")
			all = append(all, resource)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	// empty reports what an etcd holds though it must hold nothing of tenants.
	empty := func(t testing.TB, n string) {
		t.Helper()
		c, ctx := servers[n].Root, t.Context()
		got, err := c.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithKeysOnly())
		must(t, err)
		users, err := c.UserList(ctx)
		must(t, err)
		roles, err := c.RoleList(ctx)
		must(t, err)
		got.Kvs = slices.DeleteFunc(got.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == "compact_rev_key" }) // nobody's
		if len(got.Kvs) > 0 || len(users.Users) > 1 || len(roles.Roles) > 1 {
			t.Errorf("%s holds %v, users %v, roles %v", n, got.Kvs, users.Users, roles.Roles)
		}
	}

	o := overriding(env.Tenant("parts", "v1.36.3"), "/events#third", "coordination.k8s.io/leases#second")
	parts := events.Tenant(o.Namespace, o.Name)
	e.Apply(t, o)
	e.Ready(t, parts)
	kubeconfig := e.Kubeconfig(t, parts)
	e.Kubectl(t, kubeconfig, "create", "deployment", "web", "--image=nginx") // of which Events tell
	sees := func(t *testing.T, n string) {
		t.Helper()
		env.Eventually(t, "Events in "+n, func() error {
			if !slices.Contains(resources(t, n, parts), "events") {
				return errNotYet
			}
			return nil
		})
	}

	t.Run("each resource is where its override says, and nowhere else", func(t *testing.T) {
		sees(t, "third")
		if second, third := resources(t, "second", parts), resources(t, "third", parts); !slices.Equal(second, []string{"leases"}) || !slices.Equal(third, []string{"events"}) {
			t.Errorf("second holds %v, third %v", second, third)
		}
		held := resources(t, "first", parts)
		if slices.Contains(held, "leases") || slices.Contains(held, "events") || !slices.Contains(held, "deployments") {
			t.Errorf("first holds %v", held)
		}
		if out := e.Kubectl(t, kubeconfig, "get", "events", "-A", "-o", "name"); !strings.Contains(out, "event/") {
			t.Errorf("events: %q", out)
		}
	})
	t.Run("all three are used by it", func(t *testing.T) {
		for _, n := range []string{"first", "second", "third"} {
			usedBy(t, n, parts)
		}
	})
	t.Run("deletion leaves nothing in either", func(t *testing.T) {
		o := overriding(asleep("parts-asleep"), "/pods#second")
		key := events.Tenant(o.Namespace, o.Name)
		e.Apply(t, o)
		env.Eventually(t, "its account in both", func() error {
			o := &v1alpha1.TenantControlPlane{}
			if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, o); err != nil {
				return err
			}
			if o.Status.Storage.DataStoreName == "" {
				return fmt.Errorf("%+v", o.Status.Conditions)
			}
			return nil
		})
		e.Delete(t, key)
		s := e.Gone(t, key)
		if s.Removed["datastore/User"] != 2 || s.Removed["datastore/Role"] != 2 || len(s.Left) > 0 {
			t.Errorf("removed %v, left %v", s.Removed, s.Left)
		}
	})
	if testing.Short() {
		e.Delete(t, parts)
		e.Gone(t, parts)
		for n := range servers {
			erase(t, kube.DataStores, "", n)
			vanished(t, kube.DataStores, "", n)
		}
	}
	env.Long(t, "services/datastore shows moves of resources (TestResourcesMove), TestMigration moves of whole tenants")
	t.Run("its own moves while clients work, and they stay", func(t *testing.T) {
		if code, text := stoker(t, "migrate", parts.Name, "--to", "third", "--plan"); code != 1 || !strings.Contains(text, reason.OverridesSet) {
			t.Errorf("to where its Events are: exit %d\n%s", code, text)
		}
		c := clientOf(t, kubeconfig)
		fill(t, c, 200)
		annotate(t, parts, name.AnnotationMigrationGrace, "0")
		w := watchAndWrite(t, c)
		if code, text := stoker(t, "drain", "first", "--to", "fourth", "--timeout", "5m"); code != 0 {
			t.Errorf("exit %d\n%s", code, text)
		}
		e.Kubectl(t, kubeconfig, "create", "deployment", "moved", "--image=nginx")
		arrived(t, parts, "fourth")
		w.end(t)
		env.Eventually(t, "nothing of it to be left in first", func() error {
			if held := resources(t, "first", parts); len(held) > 0 {
				return fmt.Errorf("%v", held)
			}
			return nil
		})
		if n := len(list(t, c)); n != 200 {
			t.Errorf("%d of 200 objects", n)
		}
		if second, third := resources(t, "second", parts), resources(t, "third", parts); !slices.Equal(second, []string{"leases"}) || !slices.Equal(third, []string{"events"}) {
			t.Errorf("second holds %v, third %v", second, third)
		}
		if held := resources(t, "fourth", parts); slices.Contains(held, "leases") || slices.Contains(held, "events") || !slices.Contains(held, "deployments") {
			t.Errorf("fourth holds %v", held)
		}
		usedBy(t, "first")
	})
	t.Run("what overrides name moves while clients work: one resource to another etcd, and then one back to the tenant's own", func(t *testing.T) {
		c := clientOf(t, kubeconfig)
		w := watchAndWrite(t, c) // which write ConfigMaps
		merge(t, kube.TenantControlPlanes, parts.Namespace, parts.Name, map[string]any{"spec": map[string]any{"dataStoreOverrides": []any{
			map[string]any{"resource": "/configmaps", "dataStore": "second"}, map[string]any{"resource": "/events", "dataStore": "third"},
		}}})
		env.Eventually(t, "ConfigMaps in second, and Leases in fourth", func() error {
			d := storedAs(t, parts)
			i := slices.IndexFunc(d.Overrides, func(o state.Override) bool { return o.DataStore == "second" })
			if d.Move != nil || i < 0 || !slices.Equal(d.Overrides[i].Resources, []string{"/configmaps"}) {
				return fmt.Errorf("%+v %+v", d.Overrides, d.Move)
			}
			return nil
		})
		e.Ready(t, parts)
		w.end(t)
		if n := len(list(t, c)); n != 200 {
			t.Errorf("%d of 200 objects", n)
		}
		if second, fourth := resources(t, "second", parts), resources(t, "fourth", parts); !slices.Equal(second, []string{"configmaps"}) ||
			!slices.Contains(fourth, "leases") || slices.Contains(fourth, "configmaps") {
			t.Errorf("second holds %v, fourth %v", second, fourth)
		}
		if in := read(t, parts).Status.Storage.Overrides; len(in) != 2 || in[0].Resource != "/configmaps" || in[0].DataStore != "second" {
			t.Errorf("its status says %+v", in)
		}
	})
	t.Run("stoker drain takes what overrides keep in a DataStore out of it, too", func(t *testing.T) {
		if code, text := stoker(t, "drain", "second", "--to", "first", "--timeout", "5m"); code != 0 || !strings.Contains(text, "what dataStoreOverrides kept in DataStore second is in DataStore first") {
			t.Errorf("exit %d\n%s", code, text)
		}
		env.Eventually(t, "ConfigMaps in first, without a record of the move, and nothing in second", func() error {
			if first, second := resources(t, "first", parts), resources(t, "second", parts); !slices.Equal(first, []string{"configmaps"}) || len(second) > 0 {
				return fmt.Errorf("first holds %v, second %v", first, second)
			}
			return nil
		})
		e.Ready(t, parts)
		usedBy(t, "second")
	})
	t.Run("a DataStore whose override goes is held until no pod uses it, and holds nothing then", func(t *testing.T) {
		erase(t, kube.DataStores, "", "third")
		merge(t, kube.TenantControlPlanes, parts.Namespace, parts.Name, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{name.AnnotationQuotaObjects: "20000"}}, // for which pods have gates
			"spec": map[string]any{
				"dataStoreOverrides": []any{map[string]any{"resource": "/configmaps", "dataStore": "first"}},
			},
		})
		vanished(t, kube.DataStores, "", "third")
		empty(t, "third")
		e.Ready(t, parts)
		e.Kubectl(t, kubeconfig, "create", "deployment", "again", "--image=nginx")
		sees(t, "fourth")
		if got := read(t, parts).Annotations[name.AnnotationDatastoreOverrides]; got != "first" {
			t.Errorf("on record is %q", got)
		}
	})
	t.Run("with one of them away it ends, too, and says what is left there", func(t *testing.T) {
		servers["first"].Kill(t)
		e.Delete(t, parts)
		s := e.Gone(t, parts)
		if len(s.Left) != 1 || !strings.HasPrefix(s.Left[0], "left in DataStore first: keys from /") || s.Removed["datastore/User"] != 1 {
			t.Errorf("removed %v, left %q", s.Removed, s.Left)
		}
		nothingLeft(t, parts)
		empty(t, "second")
		empty(t, "fourth")
	})
	for _, n := range []string{"first", "second", "fourth"} {
		erase(t, kube.DataStores, "", n)
		vanished(t, kube.DataStores, "", n)
	}
}
