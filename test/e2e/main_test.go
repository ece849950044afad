// Package e2e tries what the README promises, on a real management cluster, NATS and etcd, with each service as a process
// of its own under its own identities.
package e2e

import (
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }) }
