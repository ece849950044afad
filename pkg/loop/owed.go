package loop

import (
	"context"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// A state and the facts that it announces are written in two steps, and a crash may come between them. The facts are therefore
// stored in the state: they are owed until the stream has them, and whoever works on the tenant next pays.

// oldestOwed is the age from which on a fact is not told again: the stream had it and dropped it, or is about to.
const oldestOwed = events.FactsKept - 24*time.Hour

// unmet reports whether this replica has not met an object since it started, took its partition over, or lost the streams.
func (l *Loop) unmet(key events.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.published[key]
}

// payOwed publishes the facts of the own state that the stream lacks. It asks the stream only when it isn't known to have them:
// after a start, a takeover, an unfinished write, or when an event was delivered again.
func (t *Turn) payOwed(ctx context.Context, again bool) error {
	if (t.first || again) && t.own != nil {
		t.owed = true
		for _, f := range t.own.Facts {
			if time.Since(f.Time) > oldestOwed {
				continue
			}
			if err := t.publishMissing(ctx, f); err != nil {
				return err
			}
		}
		t.owed = false
	}
	t.notePublished(t.own != nil)
	return nil
}

// publishMissing publishes a fact unless the last one on its subject is this one, or a later one of the same life of the tenant: what
// is on the stream from another life is from before, whatever the clocks said then.
func (t *Turn) publishMissing(ctx context.Context, f state.Fact) error {
	last, err := t.loop.Bus.LastFact(ctx, t.Key.FactSubject(t.loop.Service, f.What))
	if err != nil {
		return err
	}
	if last != nil {
		e := Event{Event: *last, Service: t.loop.Service}
		if e.ID() == f.ID || e.Time().After(f.Time) && aboutOf(e).UID == t.own.UID {
			return nil
		}
	}
	return t.publish(ctx, t.own, f)
}

func (t *Turn) publish(ctx context.Context, s *state.State, f state.Fact) error {
	bus := t.loop.Bus
	_, err := bus.Publish(ctx, t.Key.FactSubject(t.loop.Service, f.What), t.factEvent(s.Generation, f))
	return err
}

// notePublished notes whether the facts of the own state are known to be in the stream.
func (t *Turn) notePublished(are bool) {
	l := t.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	if are {
		l.published[t.Key] = true
	} else {
		delete(l.published, t.Key)
	}
}
