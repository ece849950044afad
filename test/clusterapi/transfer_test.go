package clusterapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestMoveBetweenManagementClusters moves a Cluster by clusterctl from one management cluster to another, each with a Stoker and a NATS of its own,
// which have a database in common, where its tenant's data are and stay.
func TestMoveBetweenManagementClusters(t *testing.T) {
	env.Long(t, "TestTransfer in services/datastore shows that the data stay; this test runs two management clusters")
	first := e
	defer func() { e = first }() // what the helpers of these tests work in
	second := env.Another(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	database := etcdserver.StartWith(t, etcdserver.NewAuthority(t, key), "127.0.0.2") // 127.0.0.1 is each pod's own
	ctls := map[*env.Env]*clusterctl{}
	for _, e = range []*env.Env{first, second} {
		ctls[e] = provided(t, database)
	}
	e = first
	c := cluster{name: "mover", controlPlane: "mover", infrastructure: "mover"}
	put(t, infrastructures, c.infrastructure, "metadata: {annotations: {cluster.x-k8s.io/managed-by: kamaji}}\nspec: {}")
	put(t, controlPlanes, c.controlPlane, `
metadata: {annotations: {`+name.AnnotationTransferWhenPaused+`: "true"}}
spec: {version: v1.36.3, replicas: 1, dataStoreName: shared, network: {serviceType: LoadBalancer}}`)
	put(t, clusters, c.name, `
spec:
  clusterNetwork: {services: {cidrBlocks: [10.96.0.0/16]}, pods: {cidrBlocks: [10.244.0.0/16]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: KubevirtCluster, name: mover}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: mover}`)
	provision(t, c.infrastructure)
	c.available(t, "v1.36.3", 1)
	in := clientIn(t, c)
	kept := &corev1.ConfigMap{TypeMeta: kube.ConfigMaps.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}, Data: map[string]string{"word": "here"}}
	must(t, in.Create(t.Context(), kube.ConfigMaps, kept))
	was := tenant(t, c)

	t.Run("a pause makes it ready, and its end takes that back", func(t *testing.T) {
		change(t, clusters, c.name, `{"spec":{"paused":true}}`)
		awaitControlPlane(t, c, "to be movable", func(o *controlplane.KamajiControlPlane) bool {
			return is(o, controlplane.ConditionPaused) && !blocked(o)
		})
		if held := records(t, database); !strings.Contains(held, "transfer:") || strings.Contains(held, string(was.UID)) {
			t.Errorf("on record is %s", held)
		}
		change(t, clusters, c.name, `{"spec":{"paused":false}}`)
		awaitControlPlane(t, c, "to be blocked again", blocked)
		env.Eventually(t, "the account to be the tenant's again", func() error {
			if held := records(t, database); strings.Contains(held, "transfer:") || !strings.Contains(held, string(was.UID)) {
				return fmt.Errorf("on record is %s", held)
			}
			return nil
		})
		e.Ready(t, c.key())
		c.works(t)
	})
	t.Run("moved, it is where it was moved to, with its data", func(t *testing.T) {
		ctls[first].run(t, "move", "--to-kubeconfig="+second.Local.Kubeconfig("admin"), "-n", namespace)
		awaitGone(t, clusters, namespace, c.name)
		awaitGone(t, kube.TenantControlPlanes, namespace, c.controlPlane)
		if gone := e.Gone(t, c.key()); gone.Removed["datastore/Key"] > 0 || len(gone.Left) > 0 {
			t.Errorf("%+v", gone)
		}
		e = second
		provision(t, c.infrastructure) // as its provider would there: clusterctl moves no status
		c.available(t, "v1.36.3", 1)
		c.works(t)
		now := tenant(t, c)
		if now.UID == was.UID || now.Status.Storage.Setup.Schema != was.Status.Storage.Setup.Schema ||
			now.Status.Storage.Setup.User != was.Status.Storage.Setup.User || now.Status.Storage.DataStoreName != "shared" {
			t.Errorf("%+v", now.Status.Storage)
		}
		if _, there := now.Annotations[name.AnnotationTransfer]; there || !blocked(controlPlane(t, c)) {
			t.Errorf("%v", now.Annotations)
		}
		var got corev1.ConfigMap
		must(t, clientIn(t, c).Get(t.Context(), kube.ConfigMaps, namespace, "kept", &got))
		if got.Data["word"] != "here" {
			t.Errorf("%v", got.Data)
		}
		if held := records(t, database); strings.Contains(held, "transfer:") || !strings.Contains(held, string(now.UID)) {
			t.Errorf("on record is %s", held)
		}
	})
	t.Run("deleted there, nothing of it is left in the database", func(t *testing.T) {
		c.gone(t)
		if held := records(t, database); held != "" {
			t.Errorf("on record is %s", held)
		}
	})
}

// provided makes of a management cluster one that clusterctl has initialized, with the DataStore that both have.
func provided(t *testing.T, database *etcdserver.Server) *clusterctl {
	t.Helper()
	in := e
	t.Cleanup(func() { in.NoServices(t) })
	for _, service := range name.Services() {
		if service != name.ServiceCAPI {
			e.Service(t, service, "a")
		}
	}
	withoutCAPI(t)
	ctl := newClusterctl(t)
	ctl.run(t, "init", "--core=cluster-api:"+ctl.version, "--bootstrap=kubeadm:"+ctl.version, "--control-plane=stoker:"+release)
	e.Core(t, images.ClusterAPI, as(t, "capi-system", "capi-manager"))
	runDeployment(t, name.SystemNamespace, "stoker-capi")
	from := database.Config(t)
	content := func(b []byte) v1alpha1.ContentRef { return v1alpha1.ContentRef{Content: b} }
	o := &v1alpha1.DataStore{TypeMeta: kube.DataStores.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
	o.Spec = v1alpha1.DataStoreSpec{Driver: v1alpha1.DriverEtcd, Endpoints: from.Endpoints, TLSConfig: &v1alpha1.TLSConfig{
		CertificateAuthority: v1alpha1.CertKeyPair{Certificate: content(from.CA), PrivateKey: new(content(from.CAKey))},
		ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: content(from.ClientCert), PrivateKey: content(from.ClientKey)},
	}}
	must(t, e.Admin.Create(t.Context(), kube.DataStores, o))
	t.Cleanup(func() { _, _ = in.Admin.Delete(t.Context(), kube.DataStores, "", "shared", metav1.DeleteOptions{}) })
	return ctl
}

// records are those that the database has of whose accounts are.
func records(t testing.TB, database *etcdserver.Server) string {
	t.Helper()
	got, err := database.Root.Get(t.Context(), "stoker.dev/owner/", clientv3.WithPrefix())
	must(t, err)
	var held []string
	for _, kv := range got.Kvs {
		held = append(held, string(kv.Key)+"="+string(kv.Value))
	}
	return strings.Join(held, " ")
}
