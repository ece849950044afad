package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// What becomes of an error that a turn ends with, by its intent (pkg/intent).

const (
	// maxFailures is how often a step that fails for no known reason is tried before it goes on slowly (again.go); with the backoff
	// below about a minute and a half, if tries fail at once.
	maxFailures = 20
	// tellAfter is the number of failed attempts from which on a failure is told in state and status.
	tellAfter = 3
	// turnTimeout is the default of Loop.TurnTimeout.
	turnTimeout = 30 * time.Second
)

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 50, Cap: 5 * time.Second}
}

// count counts a failed try.
func (w *work) count(i intent.Intent) {
	switch i {
	case intent.HandOver, intent.Reread: // nothing failed
	case intent.Wait:
		w.attempts++
	default:
		w.attempts++
		w.failures++
	}
}

// turn is one turn of a lane. An error means that it is to be tried again.
func (l *Loop) turn(n *lane, w work) error {
	if len(w.batch) == 0 && l.Known != nil && l.Known(n.key, w.wakes) {
		return nil
	}
	free, err := l.takeSlot(n, w.attempts > 0)
	if err != nil {
		return err
	}
	defer free()
	partition := n.key.Partition()
	term := l.lease.term(partition)
	held := fence.With(n.ctx, func() bool { return l.lease.holds(partition) && l.lease.term(partition) == term })
	if err := fence.Check(held); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(held, l.TurnTimeout)
	defer cancel()
	defer l.keepAlive(w.batch)()

	started := time.Now()
	l.metrics.noteAges(w.batch, started)
	t := &Turn{Key: n.key, Wakes: w.wakes, loop: l, attempt: w.attempts}
	for _, d := range w.batch {
		t.Events = append(t.Events, d.event)
	}
	err = l.attempt(ctx, t, w)
	for _, d := range w.batch {
		d.ended = slices.Contains(t.ended, d.event.Raw)
	}
	result, err := l.conclude(ctx, n, t, w, err)
	for _, d := range w.batch {
		l.metrics.events.WithLabelValues(d.event.metricType(), result).Inc()
	}
	l.metrics.turns.WithLabelValues(result).Observe(time.Since(started).Seconds())
	return err
}

// takeSlot waits for a place among the turns that run side by side. Those whose last try failed have a quarter of the places, so that
// objects whose servers hang never keep those waiting that are well. [fence.ErrFenced] when the partition is given up meanwhile.
func (l *Loop) takeSlot(n *lane, failed bool) (free func(), _ error) {
	kinds := []chan struct{}{l.running}
	if failed {
		kinds = []chan struct{}{l.failing, l.running}
	}
	taken := 0
	free = func() {
		for _, kind := range kinds[:taken] {
			<-kind
		}
	}
	for _, kind := range kinds {
		select {
		case kind <- struct{}{}:
			taken++
		case <-n.closed:
			free()
			return nil, fence.ErrFenced
		case <-n.ctx.Done():
			free()
			return nil, n.ctx.Err()
		}
	}
	return free, nil
}

// attempt runs the turn, unless one of its events ended too many replicas, and gives its error an intent.
func (l *Loop) attempt(ctx context.Context, t *Turn, w work) error {
	ended, err := l.begin(ctx, w.batch)
	if intent.Of(err) == intent.GiveUp {
		if err := t.load(ctx, false); err != nil { // the failure is to be noted in the state
			return events.Classify(err)
		}
	}
	if err != nil {
		return events.Classify(err)
	}
	defer ended()
	again := slices.ContainsFunc(w.batch, (*delivery).again)
	return events.Classify(l.guarded(ctx, t, again))
}

// conclude does what follows from the error of a turn: failures are told, what no retry can help becomes a dead letter. It
// returns the turn's result as metrics show it, and the error that is left.
func (l *Loop) conclude(ctx context.Context, n *lane, t *Turn, w work, err error) (result string, _ error) {
	attempt := w.attempts + 1
	switch i := intent.Of(err); {
	case i == intent.Done:
		l.waitsFor(n, "")
		l.noteDone(t)
		l.noteDrift(t)
		return "done", nil
	case i == intent.Wait:
		var away *intent.Unavailable
		errors.As(err, &away)
		if away.Dependency != "" {
			l.health.Down(away.Dependency, away.Err)
		}
		l.waitsFor(n, away.Dependency)
		if w.attempts >= tellAfter {
			_ = t.fail(ctx, state.Failure{Reason: reason.Unavailable, Message: away.Error(), Attempts: w.attempts})
		}
		return "unavailable", err
	case i == intent.GiveUp:
		var permanent *intent.Permanent
		errors.As(err, &permanent)
		f := state.Failure{Reason: permanent.Reason, Message: permanent.Error(), Attempts: attempt, Permanent: true}
		return "dead", l.giveUp(ctx, t, w, f)
	case i == intent.HandOver, i == intent.Reread, n.ctx.Err() != nil:
		return "fenced", err
	case w.failures+1 >= maxFailures || w.isAgain():
		f := state.Failure{Reason: reason.RetriesExhausted, Message: err.Error(), Attempts: attempt, Permanent: true}
		return "dead", l.giveUp(ctx, t, w, f)
	}
	l.log.Warn("step failed, trying again", "tenant", n.key.String(), "attempt", attempt, "error", err)
	if w.attempts >= tellAfter {
		_ = t.fail(ctx, state.Failure{Reason: reason.StepFailed, Message: err.Error(), Attempts: attempt})
	}
	return "retry", err
}

// guarded prepares the turn and runs the handler. A panic in it is an error that no retry helps.
func (l *Loop) guarded(ctx context.Context, t *Turn, again bool) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &intent.Permanent{Reason: reason.Panic, Message: fmt.Sprintf("%s panicked: %v", l.Service, r)}
		}
	}()
	if err := t.load(ctx, again); err != nil {
		return err
	}
	if t.Paused() {
		if l.Paused != nil {
			l.Paused(t)
		}
		return nil
	}
	t.addDue()
	if err := t.removedAgain(ctx); err != nil {
		return err
	}
	return l.Handle(ctx, t)
}
