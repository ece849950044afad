// Package gitops has Flux' own controllers, as they are published, install software in a tenant by the kubeconfigs that Stoker makes.
package gitops

import (
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }) }
