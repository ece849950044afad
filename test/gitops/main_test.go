// Package gitops has Flux' own controllers, as they are published, install software in a tenant by the kubeconfigs that Stoker makes.
package gitops

import (
	"flag"
	"os"
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run()) // all tests are long
	}
	env.Main(m, func(started *env.Env) { e = started })
}
