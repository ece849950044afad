package loop

import (
	"encoding/json"

	"github.com/stoker-k8s/stoker/pkg/api/event"
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

// addDueAfterPause adds the event <service>.due to a turn in which a pause has ended, so that the service looks at everything: it
// ignored watches and timers during the pause. The fact that ends the pause outlives restarts and moves of the partition, which a
// memory of the pause would not.
func (t *Turn) addDueAfterPause() {
	if t.Tenant == nil || !t.pausable() {
		return
	}
	for _, e := range t.Events {
		var a event.IntakeAccepted
		if e.Err == nil && e.Service == name.ServiceIntake && e.What == event.Accepted && json.Unmarshal(e.Data(), &a) == nil && a.Resumed {
			t.Events = append(t.Events, Event{Service: t.loop.Service, What: event.Due})
			return
		}
	}
}
