// Package e2e tries what the README promises, on a real management cluster, NATS and etcd, with each service as a process
// of its own under its own identities.
package e2e

import (
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

// standIns are the tenants in whose pods stand-ins take the place of the programs with -short. Their tests need nothing of a tenant but that it
// becomes ready.
var standIns = []string{
	"default/elsewhere", "tenants/alone", "default/bad", "default/doomed", "default/moved", "default/portal", "default/portal-life",
}

func TestMain(m *testing.M) {
	env.Main(m, func(started *env.Env) { e = started }, env.StandIns(func(tenant string) bool {
		return testing.Short() && slices.Contains(standIns, tenant)
	}))
}
