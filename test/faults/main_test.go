// Package faults breaks the installation in every way the design has an answer to, and checks that it converges: services
// killed and stopped, NATS, Kubernetes and etcd away, JetStream's storage lost, events repeated and out of order, owned
// objects deleted by hand.
package faults

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

// realTenants run the real programs with -short, too. One test searches the logs of these programs, and the objects that controllers make inside
// a tenant, for the contents of Secrets; another compares objects that come back with defaults of a real API server.
var realTenants = []string{"default/keys", "default/keys-sql", "default/drift"}

// standIns reports whether stand-ins take the place of the programs in a tenant's pods: with -short, of all but realTenants; without it, of the
// tenants whose services are stopped, because the fence does not depend on a tenant's API.
func standIns(tenant string) bool {
	if testing.Short() {
		return !slices.Contains(realTenants, tenant)
	}
	return strings.HasPrefix(tenant, "default/stopped-")
}

// TestMain runs the tests of one group side by side, because they wait most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := "6"
	if testing.Short() {
		parallel = "18"
	}
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	env.Main(m, func(started *env.Env) { e = started }, env.StandIns(standIns))
}
