// Package intake tries the way in on a real API server and NATS, with nothing else running: whatever anybody sends is
// answered, and nobody waits for it.
package intake

import (
	"testing"

	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }, env.APIOnly) }
