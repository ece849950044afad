// Package faults breaks the installation in every way the design has an answer to, and checks that it converges: services
// killed and stopped, NATS, Kubernetes and etcd away, JetStream's storage lost, events repeated and out of order, owned
// objects deleted by hand.
package faults

import (
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }) }
