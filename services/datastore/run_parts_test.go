package datastore_test

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// TestWhatIsInSeveralDataStores is cloned and restored as one, to where each tenant's overrides say.
func TestWhatIsInSeveralDataStores(t *testing.T) {
	t.Parallel()
	a := etcdserver.Start(t)
	b := etcdserver.StartWith(t, a.CA, "127.0.0.1")
	in := install(t)
	in.etcdStore("parts-a", a)
	in.etcdStore("parts-alias", a)
	in.etcdStore("parts-b", b)
	in.etcdStore("parts-b-alias", b)
	stop := in.run()
	defer func() { stop() }()
	tenantOf := func(n string, overrides ...string) *tenant { return in.overridden(n, "parts-a", overrides...) }
	keeps := func(server *etcdserver.Server, x *tenant) []string {
		t.Helper()
		prefix := "/" + x.account().Schema + "/"
		have, err := server.Root.Get(t.Context(), prefix, clientv3.WithPrefix())
		in.must(err)
		all := map[string]string{}
		for _, kv := range have.Kvs {
			if key := strings.TrimPrefix(string(kv.Key), prefix); !driver.IsRecord(key) {
				all[key+"="+string(kv.Value)] = ""
			}
		}
		return slices.Sorted(maps.Keys(all))
	}
	want := func(server *etcdserver.Server, x *tenant, keys ...string) {
		t.Helper()
		if have := keeps(server, x); !slices.Equal(have, keys) {
			t.Errorf("%s keeps %q, not %q", x.key.Name, have, keys)
		}
	}
	original := tenantOf("original", "/events#parts-b", "/nodes#parts-b")
	original.accept()
	next[event.DatastoreProvisioned](original, event.Provisioned)
	for at, server := range map[string]*etcdserver.Server{"a": a, "b": b} {
		for _, key := range []string{"configmaps/default/x", "events/default/e", "pods/default/p"} {
			_, err := server.Root.Put(t.Context(), "/"+original.account().Schema+"/"+key, at)
			in.must(err)
		}
	}

	clone := func(x *tenant) {
		t.Helper()
		x.t.Annotations = map[string]string{name.AnnotationCloneOf: "original"}
		x.accept()
		next[event.DatastoreRestored](x, event.Restored)
	}
	likewise, together, elsewhere := tenantOf("likewise", "/events#parts-b"), tenantOf("together"), tenantOf("elsewhere", "/events#parts-alias", "/pods#parts-b", "/configmaps#parts-b-alias")
	for _, x := range []*tenant{likewise, together, elsewhere} {
		clone(x)
	}
	want(a, likewise, "configmaps/default/x=a", "pods/default/p=a")
	want(b, likewise, "events/default/e=b")
	want(a, together, "configmaps/default/x=a", "events/default/e=b", "pods/default/p=a")
	want(b, together)
	want(a, elsewhere, "events/default/e=b")
	want(b, elsewhere, "configmaps/default/x=a", "pods/default/p=a")

	identity, err := age.GenerateX25519Identity()
	in.must(err)
	system := &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: name.SystemNamespace}}
	if err := in.kube.Create(t.Context(), kube.Namespaces, system); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	location, at := "parts-"+in.namespace, backup.Access{URL: "file://" + t.TempDir()}
	in.must(in.kube.Create(t.Context(), kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: name.SystemNamespace, Name: location}, Type: name.BackupLocation,
		Data: map[string][]byte{name.KeyLocationURL: []byte(at.URL), name.KeyLocationRecipients: []byte(identity.Recipient().String())},
	}))
	l, err := backup.OpenLocation(t.Context(), at)
	in.must(err)
	defer l.Close()
	m, err := backup.Make(t.Context(), l, backup.Source{
		Manifest:   backup.Manifest{Tenant: backup.Tenant{Namespace: in.namespace, Name: "original"}, Kubernetes: likewise.t.Spec.Kubernetes.Version},
		Recipients: []string{identity.Recipient().String()},
		Export: iter.Seq2[driver.Change, error](func(yield func(driver.Change, error) bool) {
			for _, key := range []string{"configmaps/default/x", "events/default/e"} {
				if !yield(driver.Change{Key: key, Value: []byte("kept")}, nil) {
					return
				}
			}
		}),
	})
	in.must(err)
	sealed, err := backup.KeysOf(t.Context(), l, m)
	in.must(err)
	opened, err := backup.OpenKeys(m, sealed, identity.String())
	in.must(err)
	restored := tenantOf("restored", "/events#parts-b")
	in.must(in.kube.Create(t.Context(), kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: name.Restore("restored")},
		Data: map[string][]byte{name.KeyRestoreIdentity: []byte(opened.Identity)},
	}))
	restored.t.Annotations = map[string]string{name.AnnotationRestoreFrom: strings.Join([]string{location, in.namespace, "original", m.ID}, "/")}
	restored.accept()
	if fact := next[event.DatastoreRestored](restored, event.Restored); fact.Keys != 2 {
		t.Errorf("%+v", fact)
	}
	want(a, restored, "configmaps/default/x=kept")
	want(b, restored, "events/default/e=kept")
}
