// Package faults breaks the installation in every way the design has an answer to, and checks that it converges: services
// killed and stopped, NATS, Kubernetes and etcd away, JetStream's storage lost, events repeated and out of order, owned
// objects deleted by hand.
package faults

import (
	"flag"
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

// atOnce is how many tests of one group run side by side: most of what they do is wait.
const atOnce = "3"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	env.Main(m, func(started *env.Env) { e = started })
}
