// Package clusterapi tries Stoker behind Cluster API: its core controllers as they are published, on a real management cluster, with control
// plane providers in front of all of Stoker's services.
package clusterapi

import (
	"path/filepath"
	"testing"

	"github.com/stoker-k8s/stoker/deployments/local/images"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }) }

// core starts Cluster API, with kinds of infrastructure of which tests play the part.
func core(t testing.TB) {
	t.Helper()
	e.ClusterAPI(t)
	e.Manifests(t, filepath.Join("testdata", "infrastructure"))
}

// kamajisProvider starts Kamaji's provider; what it sends to the API server is recorded.
func kamajisProvider(t testing.TB) (*env.Process, *env.Tap) {
	t.Helper()
	tap, kubeconfig := env.APITap(t, e.Local.Kubeconfig("admin"))
	program := filepath.Join(env.Built(t, images.KamajiProvider), "kamaji-provider")
	return e.Controller(t, program, kubeconfig, "--health-probe-bind-address=0"), tap
}
