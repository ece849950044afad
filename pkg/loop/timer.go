package loop

import (
	"context"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// At wakes the service with the fact <service>.due at a time, in place of an earlier timer of this tenant and service. The
// server keeps the timer; it outlives every replica, but not STOKER_FACTS' age of 30 days.
func (t *Turn) At(ctx context.Context, at time.Time) error {
	id := events.ID(t.UID, t.loop.Service, event.Due, at.UTC().Format(time.RFC3339Nano))
	f := state.Fact{ID: id, What: event.Due, Time: at, Data: event.Marshal(event.TimerDue{About: t.About()})}
	return t.loop.Bus.SetTimer(ctx, t.Key, t.loop.Bus.FactEvent(t.Key, t.Generation, "", f), at)
}
