package loop

import (
	"encoding/json"
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Due reports whether everything is to be looked at, whatever the own state says, and timers are to be set again: the service's
// own timer has fired (<service>.due), a pause has ended, a day has passed since the last such look, what was given up is tried
// again, or what kept drifting does so no more.
func (t *Turn) Due() bool {
	return slices.ContainsFunc(t.Events, func(e Event) bool { return e.Service == t.loop.Service && e.What == event.Due })
}

// addDue adds the event <service>.due to a turn for which everything is to be looked at for another reason than a timer.
func (t *Turn) addDue() {
	there := t.Tenant != nil || !t.Key.IsTenant()
	if there && (t.Woken(wakeAgain) || t.Woken(wakeCalm) || slices.ContainsFunc(t.Events, t.isDueFor)) {
		t.Events = append(t.Events, Event{Service: t.loop.Service, What: event.Due})
	}
}

// isDueFor reports whether a fact is one after which this service looks at everything: the daily look, or the end of a pause, in
// which it ignored watches and timers. That fact outlives restarts and moves of the partition, which a memory of the pause
// would not.
func (t *Turn) isDueFor(e Event) bool {
	if e.isDailyLook() {
		return true
	}
	if e.Err != nil || e.Service != name.ServiceIntake || e.What != event.Accepted || !t.pausable() {
		return false
	}
	var a event.IntakeAccepted
	return json.Unmarshal(e.Data(), &a) == nil && a.Resumed
}

// isDailyLook reports whether an event is the fact that intake tells of each tenant and DataStore once a day, so that no message that was
// lost and no timer that is gone is missed for longer.
func (e Event) isDailyLook() bool { return e.Service == name.ServiceIntake && e.What == event.Checked }
