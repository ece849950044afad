package loop

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// RemovedBefore returns what the services before this one have removed of the tenant (event.RemovalOrder), and when the last of
// them said so; nil while it isn't this service's turn. The first of the order is never kept waiting. When everything is to be
// looked at ([Turn.Due]), or the removal was held up ([Turn.Held]), the fact may be long gone from the turn's events; then it is read
// from the stream.
func (t *Turn) RemovedBefore(ctx context.Context) (*event.Removals, time.Time, error) {
	before := event.RemovedBefore(t.loop.Service)
	if before == "" {
		return &event.Removals{About: t.About()}, time.Time{}, nil
	}
	told := t.Events
	if t.Due() || t.own != nil && t.own.Wait.Reason == reason.ObjectHeld {
		last, err := t.loop.Bus.LastFact(ctx, t.Key.FactSubject(before, event.Removed))
		if err != nil {
			return nil, time.Time{}, err
		}
		if last != nil {
			told = append([]Event{{Event: *last, Service: before, What: event.Removed}}, told...)
		}
	}
	for _, e := range slices.Backward(told) {
		if e.Service != before || e.What != event.Removed || e.Err != nil {
			continue
		}
		r := &event.Removals{}
		if err := json.Unmarshal(e.Data(), r); err != nil {
			return nil, time.Time{}, &intent.Permanent{
				Reason: reason.InvalidFact, Message: before + "." + event.Removed + " is not readable", Err: err,
			}
		}
		if t.UID == "" || r.UID == t.UID { // else of an earlier tenant of that name
			return r, e.Time(), nil
		}
	}
	return nil, time.Time{}, nil
}

// BeginRemoval is [Turn.RemovedBefore] for a service that removes its part now. It returns nil, too, when that is done already, and
// notes that the service before this one is to remove its part first while that isn't.
func (t *Turn) BeginRemoval(ctx context.Context) (*event.Removals, time.Time, error) {
	if t.own != nil && t.own.Step == event.Removed {
		return nil, time.Time{}, nil
	}
	removals, since, err := t.RemovedBefore(ctx)
	if err == nil && removals == nil {
		before := event.RemovedBefore(t.loop.Service)
		err = t.Wait(ctx, state.Wait{On: before, Reason: reason.EarlierRemoval, Text: before + " to remove what it made"})
	}
	return removals, since, err
}

const (
	// heldFor is how long what was deleted may be there still before that counts as a failure, if one that may still end well: a load
	// balancer takes minutes to be given back.
	heldFor = 3 * time.Minute
	// Who is held up looks again after ten seconds, then after as long as that has lasted, at most two minutes: watches say when what
	// is waited for is gone, and may miss it.
	soonestHeld = 10 * time.Second
	latestHeld  = 2 * time.Minute
)

// Held ends the turn of a removal that goes on once an object is gone, which is kept by what isn't Stoker's since a time: what is waited
// for is o.Wait, with the reason ObjectHeld. It is noted, told once it has lasted, and looked at again with w. The turn's events are
// done with.
func (t *Turn) Held(ctx context.Context, o Outcome, since time.Time, w Wake) error {
	lasted := time.Since(since)
	if lasted >= heldFor {
		o.Failure = &state.Failure{Reason: o.Wait.Reason, Message: "waits for " + o.Wait.Text}
	}
	t.Alarm(HeldAgain(lasted), w)
	return t.Done(ctx, o)
}

// HeldAgain is after how long what has been waited for so long in vain is looked at again.
func HeldAgain(lasted time.Duration) time.Duration { return min(max(lasted, soonestHeld), latestHeld) }

// Removed ends this service's part of a deletion: data is what is left of its state, removals what was removed so far, this
// service's part included. The next service of event.RemovalOrder goes on.
func (t *Turn) Removed(ctx context.Context, data any, removals event.Removals) error {
	return t.Done(ctx, Outcome{Step: event.Removed, Data: data, Facts: []Tell{{What: event.Removed, Data: removals}}})
}

// removedAgain tells once more that this service has removed its part, when a deletion goes on after a pause, in which the fact
// reached a service that let it pass, and once a day, for the fact may be lost. Each service that is done says so, and the first
// that isn't goes on; to the others it is a repeat.
func (t *Turn) removedAgain(ctx context.Context) error {
	if t.Tenant == nil || !t.Tenant.Deleting || t.own == nil || t.own.Step != event.Removed {
		return nil
	}
	if !slices.ContainsFunc(t.Events, func(e Event) bool {
		return e.Service == name.ServiceIntake && e.What == event.Deleting || e.isDailyLook()
	}) {
		return nil
	}
	for _, f := range t.own.Facts {
		msg := events.Encode(t.Key.FactSubject(t.loop.Service, f.What), t.factEvent(t.own.Generation, f))
		msg.Header.Del(nats.MsgIdHdr) // a repeat that is meant
		if _, err := t.loop.Bus.PublishMsg(ctx, msg); err != nil {
			return err
		}
	}
	return nil
}
