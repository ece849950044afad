package standin

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/local/address"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/services/addons"
)

// started is a stand-in for kube-apiserver that runs with a tenant's keys, the authority of these, and what makes a user's
// kubeconfig.
func started(t *testing.T, s *Programs) (p *standIn, ca *pki.Authority, kubeconfig func(by *pki.Authority) []byte) {
	t.Helper()
	block, held, err := address.Claim(0, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	host := block.Management().String()
	if ca, err = pki.OpenAuthority(t.TempDir(), "tenant"); err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Leaf{File: "apiserver", Name: "kube-apiserver", Hosts: []string{host}})
	if err != nil {
		t.Fatal(err)
	}
	const port = "6443" // no other process listens on this host
	at := net.JoinHostPort(host, port)
	started, err := s.Start(process.Spec{
		Path: "/programs/kube-apiserver", Dir: "/pods/default_shop-1-7d9c8b6f5-x2x4z_uid/home/kube-apiserver",
		Args: []string{
			"kube-apiserver", "--bind-address=" + host, "--secure-port=" + port, "--client-ca-file=" + ca.CertFile,
			"--tls-cert-file=" + pair.CertFile, "--tls-private-key-file=" + pair.KeyFile,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { started.Stop(context.Background(), 0) })
	p = started.(*standIn)
	p.api.Store(s.holding("x")) // there is no DataStore
	return p, ca, func(by *pki.Authority) []byte {
		user, err := by.Issue(pki.Leaf{File: "user", Name: "kubernetes-super-admin"})
		if err != nil {
			t.Fatal(err)
		}
		data, err := kube.Kubeconfig{
			Server: "https://" + at, CA: ca.Cert, Cluster: "x", User: "x", Certificate: user.Cert, Key: user.Key,
		}.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

// a stand-in answers the addons service's own client as an API server does.
func TestStandInTakesWhatAddonsAskFor(t *testing.T) {
	s := New(nil)
	p, ca, kubeconfig := started(t, s)
	if p.tenant != "default/shop-1" {
		t.Errorf("stands in for %q", p.tenant)
	}
	c, err := addons.NewCluster(kubeconfig(ca), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	objects, err := addons.Render(addons.Input{
		Name: "shop-1", Namespace: "default", Endpoint: "127.0.0.1:6443", AdvertiseAddress: "192.0.2.1", Version: "v1.36.3",
		ServiceCIDRs: []string{"10.96.0.0/16"}, PodCIDRs: []string{"10.244.0.0/16"}, CoreDNS: &addons.Addon{}, CACertPEM: ca.Cert,
	})
	if err != nil {
		t.Fatal(err)
	}
	versions, err := c.Apply(t.Context(), objects)
	if err != nil || len(versions) != len(objects) {
		t.Fatalf("%d of %d applied: %v", len(versions), len(objects), err)
	}
	again, err := c.Apply(t.Context(), objects)
	if err != nil {
		t.Fatal(err)
	}
	for ref, version := range versions {
		if again[ref] != version {
			t.Errorf("%s has version %s, and %s when it is applied again", ref, version, again[ref])
		}
	}
	ref := addons.RefOf(objects[0])
	ctx, end := context.WithCancel(t.Context())
	seen := make(chan addons.Event, 10)
	watched := make(chan error, 1)
	go func() { watched <- c.Watch(ctx, versions, func(e addons.Event) { seen <- e }, nil) }()
	if n, err := c.Delete(t.Context(), []addons.Ref{ref}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if e := <-seen; e.Ref != ref || e.Type != watch.Deleted {
		t.Errorf("watch says %v of %v", e.Type, e.Ref)
	}
	if _, err := c.Apply(t.Context(), []*unstructured.Unstructured{objects[0]}); err != nil {
		t.Fatal(err)
	}
	if e := <-seen; e.Ref != ref || e.Type == watch.Deleted {
		t.Errorf("watch says %v of %v", e.Type, e.Ref)
	}
	end()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// a certificate of another authority opens nothing.
func TestStandInKnowsItsUsers(t *testing.T) {
	_, _, kubeconfig := started(t, New(nil))
	other, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "other"), "tenant")
	if err != nil {
		t.Fatal(err)
	}
	k, err := kube.ForTenant(kubeconfig(other), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Get(t.Context(), kube.Namespaces, "", "kube-system", &metav1.PartialObjectMetadata{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("answers %v", err)
	}
}

// a tenant that hangs answers neither on new connections nor on those that are open, and all when it goes on.
func TestStandInHangs(t *testing.T) {
	s := New(nil)
	_, ca, kubeconfig := started(t, s)
	get := func(ctx context.Context, k *kube.Client) error {
		return k.Get(ctx, kube.Namespaces, "", "kube-system", &metav1.PartialObjectMetadata{})
	}
	open, err := kube.ForTenant(kubeconfig(ca), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := get(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	fresh, err := kube.ForTenant(kubeconfig(ca), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Hang("default/shop-1")
	answers := make(chan error, 2)
	for _, k := range []*kube.Client{open, fresh} {
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := get(short, k); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answers %v", err)
		}
		go func() { answers <- get(t.Context(), k) }()
	}
	s.Release("default/shop-1")
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// Cluster API takes a tenant's API for one that can be reached when it answers at its root, and knows Nodes.
func TestStandInIsDiscovered(t *testing.T) {
	_, ca, kubeconfig := started(t, New(nil))
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig(ca))
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.RESTClient().Get().AbsPath("/").Do(t.Context()).Error(); err != nil {
		t.Error(err)
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		t.Fatal(err)
	}
	nodes := schema.GroupKind{Kind: "Node"}
	if _, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(nodes, "v1"); err != nil {
		t.Error(err)
	}
}
