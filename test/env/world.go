package env

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// inside are the kinds of objects that addons makes inside a tenant.
var inside = []kube.Resource{
	kube.ConfigMaps, kube.ServiceAccounts, kube.Services, kube.Deployments, kube.DaemonSets,
	kube.Roles, kube.RoleBindings, kube.ClusterRoles, kube.ClusterRoleBindings,
}

// Inside is what addons has made inside a tenant, each object by a version that only a change of what was asked for changes. The error is
// that of the tenant's API, when it doesn't answer.
func (e *Env) Inside(ctx context.Context, key events.Key) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var secret corev1.Secret
	if err := e.Admin.Get(ctx, kube.Secrets, key.Namespace, name.AdminKubeconfig(key.Name), &secret); err != nil {
		return nil, err
	}
	tenant, err := kube.FromKubeconfig(secret.Data[name.KeyAdminConf], kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	if err != nil {
		return nil, err
	}
	defer tenant.Close()
	all := map[string]string{}
	for _, r := range inside {
		var list metav1.PartialObjectMetadataList
		if err := tenant.List(ctx, r, "", name.LabelProject+"="+name.Project, &list); err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			version := o.ResourceVersion
			if r.Plural == kube.Deployments.Plural || r.Plural == kube.DaemonSets.Plural {
				version = fmt.Sprint(o.UID, "/", o.Generation) // their status is their controller's
			}
			all["inside/"+r.Plural+"/"+path.Join(o.Namespace, o.Name)] = version
		}
	}
	return all, nil
}

// Stored is what the default DataStore, an etcd, holds about a tenant: its user, the roles with what they permit, and whose the
// records say that they are. The tenant's own data changes all the time; [Env.Inside] looks at that.
func (e *Env) Stored(t testing.TB, key events.Key) map[string]string {
	t.Helper()
	var o v1alpha1.TenantControlPlane
	e.Get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &o)
	setup, c, all := o.Status.Storage.Setup, e.RootEtcd(t), map[string]string{}
	user, err := c.UserGet(t.Context(), setup.User)
	if err != nil {
		t.Fatalf("user %q of %s: %v", setup.User, key, err)
	}
	all["store/user/"+setup.User] = fmt.Sprint(user.Roles)
	for _, r := range user.Roles {
		role, err := c.RoleGet(t.Context(), r)
		if err != nil {
			t.Fatalf("role %q of %s: %v", r, key, err)
		}
		all["store/role/"+r] = fmt.Sprint(role.Perm)
	}
	owners, err := c.Get(t.Context(), "stoker.dev/owner/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range owners.Kvs {
		if slices.Contains([]string{setup.User, setup.Schema}, path.Base(string(kv.Key))) {
			all["store/"+string(kv.Key)] = fmt.Sprint(kv.ModRevision, " ", string(kv.Value))
		}
	}
	if len(all) < 4 {
		t.Fatalf("of %s the DataStore holds only %v", key, all)
	}
	return all
}

// RootEtcd connects to the default DataStore as its administrator, until the test ends.
func (e *Env) RootEtcd(t testing.TB) *clientv3.Client {
	t.Helper()
	secret := func(n string) map[string][]byte {
		var s corev1.Secret
		e.Get(t, kube.Secrets, name.Namespace, n, &s)
		return s.Data
	}
	client := secret("etcd-" + stack.DefaultDataStore + "-client")
	return e.Etcd(t, secret("etcd-" + stack.DefaultDataStore + "-certs")[name.KeyCACert], client[name.KeyTLSCert], client[name.KeyTLSKey])
}

// Etcd connects to the default DataStore with a certificate, until the test ends.
func (e *Env) Etcd(t testing.TB, ca, cert, key []byte) *clientv3.Client {
	t.Helper()
	var ds v1alpha1.DataStore
	e.Get(t, kube.DataStores, "", stack.DefaultDataStore, &ds)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	var endpoints []string
	for _, ep := range ds.Spec.Endpoints {
		endpoints = append(endpoints, "https://"+ep)
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 10 * time.Second,
		TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
