package loop

import (
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Paused reports whether the tenant is paused: then nothing is changed for it, and the handler isn't called. intake sees to
// pauses and status reports them: they go on.
func (t *Turn) Paused() bool {
	return t.Tenant != nil && t.Tenant.Paused && t.pausable()
}

func (t *Turn) pausable() bool {
	return t.loop.Service != name.ServiceIntake && t.loop.Service != name.ServiceStatus
}
