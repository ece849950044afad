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
	_, met := l.published[key]
	return !met
}

// payOwed publishes the facts of the own state that the stream lacks. It asks the stream only when it isn't known to have them:
// after a start, a takeover, a write whose end isn't known, or when an event was delivered again. A write without an answer may show
// only after the state has been read once more, so what is known is known of one revision.
func (t *Turn) payOwed(ctx context.Context, again bool) error {
	if t.own == nil {
		t.forgetPublished()
		t.owe(false)
		return nil
	}
	if again || !t.published() {
		t.owe(true)
		for _, f := range t.own.Facts {
			if time.Since(f.Time) > oldestOwed {
				continue
			}
			if err := t.publishMissing(ctx, f); err != nil {
				return err
			}
		}
		t.owe(false)
	}
	t.notePublished()
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

// owe notes whether facts of the own state may lack in the stream.
func (t *Turn) owe(owed bool) {
	t.owed = owed
	l := t.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	if owed {
		l.owing[t.Key] = struct{}{}
	} else {
		delete(l.owing, t.Key)
	}
}

// owingObjects counts the objects whose facts may lack in the stream.
func (l *Loop) owingObjects() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owing)
}

// published reports whether the facts of the own state are known to be in the stream.
func (t *Turn) published() bool {
	l := t.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	revision, known := l.published[t.Key]
	return known && revision == t.revision
}

// notePublished notes that the facts of the own state are in the stream.
func (t *Turn) notePublished() {
	l := t.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published[t.Key] = t.revision
}

func (t *Turn) forgetPublished() {
	l := t.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.published, t.Key)
}
