package clusterapi

import (
	"path/filepath"
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

// TestBefore has capi behind Cluster API's minor before.
func TestBefore(t *testing.T) {
	env.Long(t)
	t.Cleanup(func() { e.NoServices(t) }) // other tests have no capi
	e.Services(t)
	e.ClusterAPIBefore(t)
	e.Manifests(t, filepath.Join("testdata", "infrastructure"))
	c := cluster{name: "former", controlPlane: "former-cp", infrastructure: "former-infra"}
	c.make(t, "v1.35.4")
	c.available(t, "v1.35.4", 1)
	c.works(t)
	t.Run("contract", func(t *testing.T) { contract(t, c) })
	c.gone(t)
}
