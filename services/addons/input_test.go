package addons

import (
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestForWhichVersionTheInsideOfATenantIsMade(t *testing.T) {
	tenant := &state.Tenant{}
	tenant.Spec.Kubernetes.Version = "v1.36.3"
	pending := &state.Upgrade{From: "v1.35.4", To: "v1.36.3", Generation: 2}
	undone := *pending
	undone.UndoneAt = time.Unix(1, 0)
	for what, of := range map[string]struct {
		upgrade    *state.Upgrade
		generation int64
		want       string
	}{
		"without an upgrade":                      {nil, 2, "v1.36.3"},
		"while it is under way":                   {pending, 2, "v1.36.3"},
		"when it was undone":                      {&undone, 2, "v1.35.4"},
		"in the generation that tries again then": {&undone, 3, "v1.36.3"},
	} {
		if got := versionOf(tenant, of.generation, state.Workload{Upgrade: of.upgrade}); got != of.want {
			t.Errorf("%s: %s, want %s", what, got, of.want)
		}
	}
}
