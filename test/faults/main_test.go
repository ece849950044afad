// Package faults breaks the installation in every way the design has an answer to, and checks that it converges: services
// killed and stopped, NATS, Kubernetes and etcd away, JetStream's storage lost, events repeated and out of order, owned
// objects deleted by hand.
package faults

import (
	"flag"
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

// realTenants run the real programs with -short, too: what these log, and what real controllers make inside a tenant, is searched for what is
// in Secrets; and what was deleted inside a tenant comes back as a real API server completes it.
var realTenants = []string{"default/keys", "default/keys-sql", "default/drift"}

// TestMain runs the tests of one group side by side: most of their time they wait. With -short, stand-ins take the place of the programs in
// all other tenants' pods; without it, all tenants are real.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel, opts := "3", []env.Option(nil)
	if testing.Short() {
		parallel, opts = "18", append(opts, env.StandIns(func(tenant string) bool { return !slices.Contains(realTenants, tenant) }))
	}
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	env.Main(m, func(started *env.Env) { e = started }, opts...)
}
