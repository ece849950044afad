// Package clusterapi tries Stoker behind Cluster API: its core controllers as they are published, on a real management cluster, with control
// plane providers in front of all of Stoker's services.
package clusterapi

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

// realTenants run the real programs with -short, too: the tenants that machines join, and the tenant that is a management cluster.
var realTenants = []string{"default/store-cp", "default/shelf", "default/apart"}

// standIns reports whether stand-ins take the place of the programs in a tenant's pods. With -short, all tenants but realTenants have stand-ins;
// without it, only the tenants of the kill test do.
func standIns(tenant string) bool {
	if testing.Short() {
		return !slices.Contains(realTenants, tenant)
	}
	return strings.HasPrefix(tenant, "default/kill-")
}

func TestMain(m *testing.M) {
	flag.Parse()
	env.Main(m, func(started *env.Env) { e = started }, env.StandIns(standIns))
}

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
