package loop

import (
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Paused reports whether the tenant is paused: then nothing is changed for it, and the handler isn't called. intake sees to
// pauses, status reports them, and capi tells them to Cluster API: they go on.
func (t *Turn) Paused() bool {
	return t.Tenant != nil && t.Tenant.Paused && t.pausable()
}

func (t *Turn) pausable() bool {
	return !slices.Contains([]string{name.ServiceIntake, name.ServiceStatus, name.ServiceCAPI}, t.loop.Service)
}
