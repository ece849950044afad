package loop

import (
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Paused reports whether the tenant is paused: then nothing is changed for it, and the handler isn't called. intake sees to
// pauses, status reports them, and capi tells them to Cluster API: they go on. A tenant that another management cluster may take over is
// paused, too, but for datastore, which gives its data away and takes them back.
func (t *Turn) Paused() bool {
	if t.Tenant == nil || !t.pausable() {
		return false
	}
	return t.Tenant.Paused || t.Tenant.Transfer != "" && t.loop.Service != name.ServiceDatastore
}

func (t *Turn) pausable() bool {
	return !slices.Contains([]string{name.ServiceIntake, name.ServiceStatus, name.ServiceCAPI}, t.loop.Service)
}
