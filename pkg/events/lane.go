package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// maxAttempts is how often a step that fails for no known reason is tried; with the backoff below about two minutes.
const maxAttempts = 20

// tellAfter is the attempt from which on a failing step is told in state and status.
const tellAfter = 3

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 50, Cap: 5 * time.Second}
}

// lane is one object's line: its events and wakes are worked on one turn after the other. It has a goroutine of its own
// for as long as there is something in it.
type lane struct {
	key    Key
	queue  []*delivery         // guarded by Loop.mu
	woken  map[string]struct{} // guarded by Loop.mu
	news   chan struct{}       // something was added
	ctx    context.Context
	cancel context.CancelFunc
	closed chan struct{} // the partition is given up
	away   string        // the dependency this lane waits for; guarded by Loop.mu
	done   chan struct{}
}

// close makes the lane end after its current turn. Loop.mu is held.
func (n *lane) close() {
	select {
	case <-n.closed:
	default:
		close(n.closed)
	}
}

// enqueue adds an event, or a wake when d is nil, to the object's lane.
func (l *Loop) enqueue(key Key, d *delivery, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lanes[key]
	if n == nil {
		ctx, cancel := context.WithCancel(l.runCtx)
		n = &lane{
			key: key, woken: map[string]struct{}{}, news: make(chan struct{}, 1), ctx: ctx, cancel: cancel,
			closed: make(chan struct{}), done: make(chan struct{}),
		}
		l.lanes[key] = n
		l.wg.Add(1)
		go func() { defer l.wg.Done(); l.runLane(n) }()
	}
	if d != nil {
		n.queue = append(n.queue, d)
	} else {
		n.woken[reason] = struct{}{}
	}
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// grow makes room for a turn on the goroutine's stack at once, while there is nothing on it: a turn would have it doubled
// time and again, and all that is on it copied, which takes a tenth of what short turns take. The stack of a lane that waits
// shrinks again.
//
//go:noinline
func grow(i int) byte {
	var turn [24 << 10]byte
	return turn[i]
}

// runLane works until the lane is empty or closed.
func (l *Loop) runLane(n *lane) {
	grow(0)
	defer close(n.done)
	defer n.cancel()
	defer l.waits(n, "")
	var batch []*delivery
	var reasons []string
	// Tries in all, and those that count towards giving up: waiting for a dependency does not.
	backoff, attempt, failed := newBackoff(), 0, 0
	for {
		l.mu.Lock()
		select {
		case <-n.closed:
			batch = append(batch, n.queue...)
			n.queue = nil
			delete(l.lanes, n.key)
			l.mu.Unlock()
			for _, d := range batch {
				l.answer(d, false)
			}
			return
		default:
		}
		batch = append(batch, n.queue...)
		n.queue = nil
		for r := range n.woken {
			if !slices.Contains(reasons, r) {
				reasons = append(reasons, r)
			}
		}
		clear(n.woken)
		select {
		case <-n.news:
		default:
		}
		if len(batch) == 0 && len(reasons) == 0 {
			delete(l.lanes, n.key)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()

		err := l.turn(n, batch, reasons, attempt, failed)
		var away *Unavailable
		switch {
		case err == nil:
			for _, d := range batch {
				l.answer(d, true)
			}
			batch, reasons, attempt, failed, backoff = nil, nil, 0, 0, newBackoff()
			continue
		case errors.Is(err, ErrFenced) || n.ctx.Err() != nil:
			// Not ours any more: the loop closes this lane, or the lease comes back.
		case errors.Is(err, ErrStale):
			// Somebody wrote meanwhile; read again.
		case errors.As(err, &away):
			attempt++
		default:
			attempt++
			failed++
		}
		select {
		case <-n.closed:
		case <-n.ctx.Done():
		case <-n.news: // perhaps what was missing, so at once at first, and never so often that it is a load
			select {
			case <-n.closed:
			case <-n.ctx.Done():
			case <-time.After(min(time.Duration(attempt)*50*time.Millisecond, time.Second)):
			}
		case <-time.After(backoff.Step()):
		}
		if n.ctx.Err() != nil {
			l.mu.Lock()
			n.close()
			l.mu.Unlock()
		}
	}
}

// turn is one pass of the one loop for one object.
func (l *Loop) turn(n *lane, batch []*delivery, reasons []string, attempt, failed int) (err error) {
	if len(batch) == 0 && l.Known != nil && l.Known(n.key, reasons) {
		return nil
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-n.ctx.Done():
		return n.ctx.Err()
	}
	partition := n.key.Partition()
	term := l.shares.term(partition)
	held := context.WithValue(n.ctx, heldKey{}, func() bool { return l.shares.held(partition) && l.shares.term(partition) == term })
	if err := Held(held); err != nil {
		return err
	}
	started := time.Now()
	t := &Turn{Key: n.key, Reasons: reasons, loop: l, attempt: attempt}
	again := false
	for _, d := range batch {
		t.Events = append(t.Events, d.event)
		again = again || d.again
		if d.count > maxDeliveries {
			err = &Permanent{Reason: "TooManyDeliveries", Message: fmt.Sprintf("event %s was delivered %d times and never finished", d.event.ID(), d.count)}
		}
	}
	ctx, cancel := context.WithTimeout(held, turnTimeout)
	defer cancel()
	if err == nil {
		err = l.guarded(ctx, t, again)
	} else if e := t.load(ctx, false); e != nil { // the failure is to be noted in the state
		err = e
	}
	if l.Classify != nil {
		err = l.Classify(err)
	}
	err = classify(err)
	result := "done"
	var permanent *Permanent
	var away *Unavailable
	switch {
	case err == nil:
		l.waits(n, "")
	case errors.As(err, &away):
		result = "unavailable"
		if away.Dependency != "" {
			l.Bus.health.Down(away.Dependency, away.Err)
		}
		l.waits(n, away.Dependency)
		if attempt >= tellAfter {
			_ = t.fail(ctx, state.Failure{Reason: reasonUnavailable, Message: away.Error(), Attempts: attempt})
		}
	case errors.As(err, &permanent):
		result = "dead"
		err = l.bury(ctx, t, batch, state.Failure{Reason: permanent.Reason, Message: permanent.Error(), Attempts: attempt + 1, Permanent: true})
	case errors.Is(err, ErrFenced), errors.Is(err, ErrStale), n.ctx.Err() != nil:
		result = "fenced"
	case failed+1 >= maxAttempts:
		result = "dead"
		err = l.bury(ctx, t, batch, state.Failure{Reason: "RetriesExhausted", Message: err.Error(), Attempts: attempt + 1, Permanent: true})
	default:
		result = "retry"
		l.log.Warn("step failed, trying again", "tenant", n.key.String(), "attempt", attempt+1, "error", err)
		if attempt >= tellAfter {
			_ = t.fail(ctx, state.Failure{Reason: "StepFailed", Message: err.Error(), Attempts: attempt + 1})
		}
	}
	for _, d := range batch {
		l.Bus.metrics.events.WithLabelValues(d.event.metricType(), result).Inc()
	}
	l.Bus.metrics.turns.WithLabelValues(result).Observe(time.Since(started).Seconds())
	return err
}

// waits notes which dependency a lane waits for, none when it is empty. The last lane that stops waiting for one says that
// it is back.
func (l *Loop) waits(n *lane, dependency string) {
	l.mu.Lock()
	before := n.away
	n.away = dependency
	waiting := before == "" || before == dependency
	for _, other := range l.lanes {
		if waiting {
			break
		}
		waiting = other.away == before
	}
	l.mu.Unlock()
	if !waiting {
		l.Bus.health.Up(before)
	}
}

// turnTimeout bounds one turn; steps that wait longer for the world end their turn and are woken.
const turnTimeout = 30 * time.Second

// guarded prepares the turn and runs the handler; a panic in it is an error like any other that no retry helps.
func (l *Loop) guarded(ctx context.Context, t *Turn, again bool) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Permanent{Reason: "Panic", Message: fmt.Sprintf("%s panicked: %v", l.Service, r)}
		}
	}()
	if err := t.load(ctx, again); err != nil {
		return err
	}
	if t.Paused() {
		if l.Paused != nil {
			l.Paused(t.Key)
		}
		return nil
	}
	t.resumed()
	if err := t.tellAgain(ctx); err != nil {
		return err
	}
	return l.Handle(ctx, t)
}

type heldKey struct{}

// Held returns ErrFenced when the replica that works under ctx may do so no longer. Clients call it before each write,
// so that a process that was stopped and goes on changes nothing.
func Held(ctx context.Context) error {
	if held, ok := ctx.Value(heldKey{}).(func() bool); ok && !held() {
		return ErrFenced
	}
	return nil
}
