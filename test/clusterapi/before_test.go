package clusterapi

import (
	"path/filepath"
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

// TestBefore has capi behind Cluster API's minor before, and infrastructure of the contract before, v1beta1.
func TestBefore(t *testing.T) {
	env.Long(t, "TestProvider shows the current contract; this test builds an earlier Cluster API")
	t.Cleanup(func() { e.NoServices(t) }) // other tests have no capi
	e.Services(t)
	e.ClusterAPIBefore(t)
	e.Manifests(t, filepath.Join("testdata", "infrastructure"))
	const crd = "crd/kubevirtclusters.infrastructure.cluster.x-k8s.io"
	contractOf := func(change ...string) {
		e.Kubectl(t, e.Local.Kubeconfig("admin"), append([]string{"label", crd}, change...)...)
	}
	contractOf("cluster.x-k8s.io/v1beta1=v1alpha1", "cluster.x-k8s.io/v1beta2-")
	c := cluster{name: "former", controlPlane: "former-cp", infrastructure: "former-infra"}
	c.make(t, "v1.35.4")
	c.available(t, "v1.35.4", 1)
	c.works(t)
	t.Run("contract", func(t *testing.T) { contract(t, c) })
	t.Run("infrastructure that waits for it is told that it is ready", func(t *testing.T) {
		if o := read(t, infrastructures, c.infrastructure); !o.Status.Ready {
			t.Errorf("%+v", o.Status)
		}
	})
	c.gone(t)
	contractOf("cluster.x-k8s.io/v1beta2=v1alpha1", "cluster.x-k8s.io/v1beta1-")
}
