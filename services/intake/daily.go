package intake

// Once a day every tenant and every DataStore is looked at by all services, whatever they believe: a fact or a timer may be lost, a
// stream purged, a watch deaf. Wakes on the clock. Brings the spec of a tenant, or the status of a DataStore, in line with the object,
// then tells intake.checked, after which each service compares all of its part with what is there and sets its timers again
// (loop.Turn.Due).
//
// When something was looked at last is on the stream of facts. A replica asks once for each; should the fact be lost, a look comes
// early.

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// daily knows when this replica's tenants and DataStores are to be looked at. The zero value is ready to use; it is safe for concurrent
// use.
type daily struct {
	mu   sync.Mutex
	next map[events.Key]time.Time // none while the last look isn't known yet
}

// due returns which of all keys are to be looked at now, a share of them at most, and forgets those that aren't among them.
func (d *daily) due(all []events.Key, now time.Time) []events.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.next
	d.next = make(map[events.Key]time.Time, len(all))
	var due []events.Key
	for _, key := range all {
		switch at := before[key]; { // zero: its last look isn't known yet
		case now.Before(at):
			d.next[key] = at
		case len(due)*lookShares < len(all):
			due = append(due, key)
			d.next[key] = now.Add(lookTick * lookShares) // should nothing come of it
		}
	}
	return due
}

// note notes that something was looked at, and returns when it is to be looked at next.
func (d *daily) note(key events.Key, looked time.Time) (next time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next = looked.Add(lookWithin - rand.N(lookSpread)) //nolint:gosec // jitter
	if d.next != nil {
		d.next[key] = next
	}
	return next
}

// over notes that something was looked at, and reports whether that is so long ago that it is to be looked at now. A look that is still
// to come was noted by a clock that was ahead, and nobody knows when it was.
func (d *daily) over(key events.Key, looked, now time.Time) bool {
	return !now.Before(d.note(key, looked)) || looked.After(now.Add(lookTick*lookShares))
}

// lookDaily wakes what is in the partitions that are held and whose look is due, until ctx ends.
func (s *svc) lookDaily(ctx context.Context, held *partition.Held, wake loop.Waker) {
	tick := time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.index.complete() {
			tick.Reset(time.Second)
			continue
		}
		for _, key := range s.daily.due(s.index.ours(held.Now()), time.Now()) {
			wake(key, loop.Wake{Kind: wakeDaily})
		}
		tick.Reset(lookTick)
	}
}

// dailyLook looks at a tenant or a DataStore and tells the others to, if that is due; else it does what the turn has to do without.
// sync looks: it brings what there is in line with the object.
func (s *svc) dailyLook(
	ctx context.Context, t *loop.Turn, now time.Time, sync func(context.Context, *loop.Turn, time.Time) error,
) error {
	last, err := s.bus.LastFact(ctx, t.Key.FactSubject(name.ServiceIntake, event.Checked))
	if err != nil {
		return err
	}
	// The id says after which look this one is, so that a repeat is dropped; where the last isn't known, none is taken for a repeat.
	looked, since := time.Time{}, now.Format(time.RFC3339Nano)
	if t.Tenant != nil {
		looked = t.Tenant.AcceptedAt
	}
	if last != nil {
		since = last.ID()
		if last.Time().After(looked) {
			looked = last.Time()
		}
	}
	if over := s.daily.over(t.Key, looked, now); !over && !asked(t) {
		if !hasNews(t, now) {
			return nil
		}
		return sync(ctx, t, now)
	}
	if err := sync(ctx, t, now); err != nil || t.Key.IsTenant() && t.Tenant == nil {
		return err
	}
	id := events.ID(t.Key.String(), t.UID, name.ServiceIntake, event.Checked, since, looked.Format(time.RFC3339Nano))
	if err := s.bus.Tell(ctx, t.Key, t.Generation, id, event.Checked, event.IntakeChecked{About: t.About()}); err != nil {
		return err
	}
	s.daily.note(t.Key, now)
	return nil
}
