package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

var bootstrapToken = regexp.MustCompile(`(?m)^([a-z0-9]{6})\.[a-z0-9]{16}$`)

func TestFromAnEventToALiveAPI(t *testing.T) {
	e.Services(t)
	one, two := events.Tenant("default", "one"), events.Tenant("default", "two")
	e.Apply(t, env.Tenant("one", "v1.36.3"))
	e.Apply(t, env.Tenant("two", "v1.35.4"))
	object := e.Ready(t, one)
	e.Ready(t, two)
	kubeconfig := e.Kubeconfig(t, one)

	t.Run("kubectl works, and the serving certificate is the tenant's CA's", func(t *testing.T) {
		if out := e.Kubectl(t, kubeconfig, "get", "ns"); !strings.Contains(out, "kube-system") {
			t.Error(out)
		}
		if out := e.Kubectl(t, kubeconfig, "version"); !strings.Contains(out, "Server Version: v1.36.3") {
			t.Error(out)
		}
		var ca corev1.Secret
		get(t, kube.Secrets, "default", name.CA("one"), &ca)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.Data["ca.crt"])
		host, _, _ := net.SplitHostPort(object.Status.ControlPlaneEndpoint)
		c, err := tls.Dial("tcp", object.Status.ControlPlaneEndpoint, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	})
	t.Run("a Deployment becomes a ReplicaSet and Pods", func(t *testing.T) {
		e.Kubectl(t, kubeconfig, "create", "deployment", "web", "--image=nginx", "--replicas=2")
		env.Eventually(t, "two Pods", func() error {
			if out := e.Kubectl(t, kubeconfig, "get", "pods", "-o", "name", "-l", "app=web"); strings.Count(out, "pod/web") != 2 {
				return errors.New(out)
			}
			return nil
		})
		if out := e.Kubectl(t, kubeconfig, "get", "rs", "-o", "name"); !strings.Contains(out, "replicaset.apps/web") {
			t.Error(out)
		}
	})
	t.Run("a ServiceAccount's token can be had and used", func(t *testing.T) {
		token := strings.TrimSpace(e.Kubectl(t, kubeconfig, "create", "token", "default"))
		if out := e.Kubectl(t, kubeconfig, "auth", "whoami", "--token", token); !strings.Contains(out, "system:") {
			t.Error(out)
		}
	})
	t.Run("nodes can join: kubeadm makes a token, cluster-info is signed with it", func(t *testing.T) {
		said := e.Kubeadm(t, kubeconfig, "token", "create", "--kubeconfig", kubeconfig)
		token := bootstrapToken.FindStringSubmatch(said) // warnings may stand before it
		if token == nil {
			t.Fatalf("no token: %s", said)
		}
		id := token[1]
		env.Eventually(t, "the signature in cluster-info", func() error {
			out := e.Kubectl(t, kubeconfig, "get", "cm", "-n", "kube-public", "cluster-info", "-o", "yaml")
			if !strings.Contains(out, "jws-kubeconfig-"+id) {
				return fmt.Errorf("token %s in\n%s", id, out)
			}
			return nil
		})
		out := e.Kubectl(t, kubeconfig, "get", "cm", "-n", "kube-public", "cluster-info", "-o", "yaml")
		var cm corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(out), &cm); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(cm.Data["kubeconfig"], object.Status.ControlPlaneEndpoint) {
			t.Errorf("cluster-info names another endpoint than %s: %s", object.Status.ControlPlaneEndpoint, cm.Data["kubeconfig"])
		}
		for _, what := range []string{"cm/kubeadm-config", "cm/kubelet-config", "deploy/coredns", "ds/kube-proxy", "svc/kube-dns"} {
			e.Kubectl(t, kubeconfig, "get", "-n", "kube-system", what)
		}
	})
	t.Run("each tenant's certificate opens its own prefix and no other", func(t *testing.T) {
		isolated(t, one, two)
		isolated(t, two, one)
	})
	t.Run("plain kubectl apply does what an event does", func(t *testing.T) {
		key := events.Tenant("default", "plain")
		o := env.Tenant("plain", "v1.36.3")
		text, _ := yaml.Marshal(env.JSON(t, o))
		if out, err := e.TryKubectl(t.Context(), e.Local.Kubeconfig("admin"), strings.NewReader(string(text)), "apply", "-f", "-"); err != nil {
			t.Fatal(err, out)
		}
		e.Ready(t, key)
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "delete", "tcp", "plain", "--wait=true", "--timeout=300s")
		e.Gone(t, key)
		nothingLeft(t, key)
	})
	t.Run("a new version rolls out without the API being away", func(t *testing.T) {
		upgrade(t, two)
	})
	t.Run("deletion leaves nothing", func(t *testing.T) {
		for _, key := range []events.Key{one, two} {
			e.Delete(t, key)
		}
		for _, key := range []events.Key{one, two} {
			s := e.Gone(t, key)
			t.Logf("removed of %s: %v", key, s.Removed)
			nothingLeft(t, key)
		}
	})
}

func get(t testing.TB, r kube.Resource, namespace, n string, out any) {
	t.Helper()
	e.Get(t, r, namespace, n, out)
}

func tenantEtcd(t testing.TB, key events.Key) *clientv3.Client {
	t.Helper()
	var s corev1.Secret
	get(t, kube.Secrets, key.Namespace, name.DatastoreCertificate(key.Name), &s)
	return e.Etcd(t, s.Data[name.KeyDatastoreCACert], s.Data[name.KeyDatastoreCert], s.Data[name.KeyDatastoreKey])
}

func datastoreOf(t testing.TB, key events.Key) state.Datastore {
	t.Helper()
	var d state.Datastore
	s := e.State(t.Context(), key, "datastore")
	if s == nil {
		t.Fatalf("no datastore state of %s", key)
		return d
	}
	if err := yaml.Unmarshal(s.Data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func isolated(t *testing.T, own, other events.Key) {
	t.Helper()
	c := tenantEtcd(t, own)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	mine, theirs := "/"+datastoreOf(t, own).Schema+"/", "/"+datastoreOf(t, other).Schema+"/"
	if r, err := c.Get(ctx, mine, clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || r.Count == 0 {
		t.Errorf("%s can't read its own prefix %s: %v", own, mine, err)
	}
	denied := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s may %s: %v", own, what, err)
		}
	}
	_, err := c.Get(ctx, theirs, clientv3.WithPrefix())
	denied("read "+theirs, err)
	_, err = c.Put(ctx, theirs+"x", "x")
	denied("write "+theirs, err)
	_, err = c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	denied("read everything", err)
	_, err = c.UserList(ctx)
	denied("list users", err)
}

// upgrade rolls a tenant from v1.35.4 to v1.36.3 while its API is read and written all the time.
func upgrade(t *testing.T, key events.Key) {
	t.Helper()
	kubeconfig := e.Kubeconfig(t, key)
	asking := keepAsking(t, readFile(t, kubeconfig))
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	env.Eventually(t, "the new generation accepted", func() error {
		if s := e.State(t.Context(), key, events.KeySpec); s == nil || s.Generation < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	e.Ready(t, key)
	if out := e.Kubectl(t, kubeconfig, "version"); !strings.Contains(out, "Server Version: v1.36.3") {
		t.Error(out)
	}
	// The old pods go after the new ones are ready; the API must outlive that too.
	env.Eventually(t, "the old pod gone", func() error {
		var pods corev1.PodList
		if err := e.Admin.List(t.Context(), kube.Pods, key.Namespace, name.LabelName+"="+key.Name, &pods); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
	asking.end(t, key, "v1.35.4", "v1.36.3")
}

// nothingLeft checks that no trace of a tenant is anywhere but in the history.
func nothingLeft(t testing.TB, key events.Key) {
	t.Helper()
	ctx := t.Context()
	if err := e.Admin.Get(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, &metav1.PartialObjectMetadata{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object: %v", err)
	}
	for _, r := range []kube.Resource{kube.Secrets, kube.Services, kube.Deployments, kube.Pods, kube.ConfigMaps, kube.Ingresses} {
		var list metav1.PartialObjectMetadataList
		env.Eventually(t, "no "+r.Plural, func() error {
			if err := e.Admin.List(ctx, r, key.Namespace, name.LabelName+"="+key.Name, &list); err != nil {
				return err
			}
			if len(list.Items) > 0 {
				return fmt.Errorf("%d left, such as %s", len(list.Items), list.Items[0].Name)
			}
			return nil
		})
	}
	if _, err := e.JetStream().KeyValue(ctx, key.Bucket()); err == nil {
		t.Errorf("bucket %s is still there", key.Bucket())
	}
	c := e.RootEtcd(t)
	// Other tests create and delete tenants while this one reads the store, so it lists the tenants before and after.
	owners := storeOwners(t)
	users, err := c.UserList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	roles, err := c.RoleList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(owners, storeOwners(t))
	for _, n := range slices.Concat(users.Users, roles.Roles) {
		if n != "root" && !owners[n] {
			t.Errorf("user or role %s of no tenant", n)
		}
	}
	for _, kv := range keys.Kvs {
		// /<schema>/… is a tenant's; stoker.dev/owner/<what>/<schema or user> says whose it is.
		schema, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), "/"), "/")
		if strings.HasPrefix(string(kv.Key), "stoker.dev/owner/") {
			schema = path.Base(string(kv.Key))
		}
		if schema != "compact_rev_key" && !owners[schema] {
			t.Errorf("key %s of no tenant", kv.Key)
			break
		}
	}
}

// storeOwners returns the schemas and users of all tenants.
func storeOwners(t testing.TB) map[string]bool {
	t.Helper()
	var list v1alpha1.TenantControlPlaneList
	e.List(t, kube.TenantControlPlanes, "", "", &list)
	owners := map[string]bool{}
	for i := range list.Items {
		o := &list.Items[i]
		owners[name.DataStoreSchema(o.Namespace, o.Name, string(o.UID))] = true
		owners[name.DataStoreUser(o.Namespace, o.Name, string(o.UID))] = true
	}
	return owners
}
