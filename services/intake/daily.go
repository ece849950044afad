package intake

// Once a day every tenant is looked at by all services, whatever they believe: a fact or a timer may be lost, a stream purged, a watch
// deaf. Wakes on the clock. Brings the spec in line with the object, then tells intake.checked, after which each service compares all
// of its part with what is there and sets its timers again (loop.Turn.Due).
//
// When a tenant was looked at last is on the stream of facts. A replica asks once for each tenant; should the fact be lost, a look
// comes early.

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

const (
	// lookWithin is how long after its last look a tenant is looked at again, and lookSpread how much earlier that may be, so that
	// tenants that were made together aren't looked at together.
	lookWithin = 23 * time.Hour
	lookSpread = 4 * time.Hour
	// lookTick is how often some are looked at, and lookShares the number of ticks it takes to come to all: an hour after a start.
	lookTick   = time.Minute
	lookShares = 60
)

// daily knows when this replica's tenants are to be looked at. The zero value is ready to use; it is safe for concurrent use.
type daily struct {
	mu   sync.Mutex
	next map[events.Key]time.Time // none for a tenant whose last look isn't known yet
}

// due returns which of the tenants are to be looked at now, a share of all at most, and forgets those that aren't among them.
func (d *daily) due(tenants []events.Key, now time.Time) []events.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.next
	d.next = make(map[events.Key]time.Time, len(tenants))
	var due []events.Key
	for _, key := range tenants {
		switch at := before[key]; { // zero: its last look isn't known yet
		case now.Before(at):
			d.next[key] = at
		case len(due)*lookShares < len(tenants):
			due = append(due, key)
			d.next[key] = now.Add(lookTick * lookShares) // should nothing come of it
		}
	}
	return due
}

// note notes that a tenant was looked at, and returns when it is to be looked at next.
func (d *daily) note(key events.Key, looked time.Time) (next time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next = looked.Add(lookWithin - rand.N(lookSpread)) //nolint:gosec // jitter
	if d.next != nil {
		d.next[key] = next
	}
	return next
}

// over notes that a tenant was looked at, and reports whether that is so long ago that it is to be looked at now. A look that is still
// to come was noted by a clock that was ahead, and nobody knows when it was.
func (d *daily) over(key events.Key, looked, now time.Time) bool {
	return !now.Before(d.note(key, looked)) || looked.After(now.Add(lookTick*lookShares))
}

// lookDaily wakes the tenants of the partitions that are held whose look is due, until ctx ends.
func (s *intake) lookDaily(ctx context.Context, held *partition.Held, wake loop.Waker) {
	tick := time.NewTimer(0)
	defer tick.Stop()
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

// dailyLook looks at a tenant and tells the others to, if that is due; else it does what the turn has to do without.
func (s *intake) dailyLook(ctx context.Context, t *loop.Turn, now time.Time) error {
	last, err := s.bus.LastFact(ctx, t.Key.FactSubject(name.ServiceIntake, event.Checked))
	if err != nil {
		return err
	}
	looked, since := time.Time{}, "" // the id says after which look this one is, so that a repeat is dropped
	if t.Tenant != nil {
		looked = t.Tenant.AcceptedAt
	}
	if last != nil {
		since = last.ID()
		if last.Time().After(looked) {
			looked = last.Time()
		}
	}
	if !s.daily.over(t.Key, looked, now) {
		if !hasNews(t) {
			return nil
		}
		return s.syncTenant(ctx, t, now)
	}
	if err := s.syncTenant(ctx, t, now); err != nil || t.Tenant == nil {
		return err
	}
	id := events.ID(t.UID, name.ServiceIntake, event.Checked, since, looked.Format(time.RFC3339Nano))
	if err := s.bus.Tell(ctx, t.Key, t.Generation, id, event.Checked, event.IntakeChecked{About: t.About()}); err != nil {
		return err
	}
	s.daily.note(t.Key, now)
	return nil
}
