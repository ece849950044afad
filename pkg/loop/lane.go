package loop

import (
	"context"
	"slices"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// lane is one object's queue: its events and wakes are worked on one turn after the other. It has a goroutine of its own for as
// long as there is something in it.
type lane struct {
	key    events.Key
	queue  []*delivery     // guarded by Loop.mu
	woken  map[wakeOf]Wake // guarded by Loop.mu
	news   chan struct{}   // something was added
	ctx    context.Context
	cancel context.CancelFunc
	closed chan struct{} // the partition is given up
	away   string        // the dependency this lane waits for; guarded by Loop.mu
	done   chan struct{}
}

// work is what the next turn of a lane is about, and how often that was tried.
type work struct {
	batch []*delivery
	wakes []Wake
	// attempts are all tries that failed, failures those of them that count towards giving up: waiting for a dependency does
	// not.
	attempts, failures int
}

// close makes the lane end after its current turn. Loop.mu is held.
func (n *lane) close() {
	select {
	case <-n.closed:
	default:
		close(n.closed)
	}
}

// isClosed reports whether the partition is given up.
func (n *lane) isClosed() bool {
	select {
	case <-n.closed:
		return true
	default:
		return false
	}
}

// enqueue adds an event, or a wake when d is nil, to the object's lane.
func (l *Loop) enqueue(key events.Key, d *delivery, w Wake) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lanes[key]
	if n == nil {
		ctx, cancel := context.WithCancel(l.turns)
		n = &lane{
			key: key, woken: map[wakeOf]Wake{}, news: make(chan struct{}, 1), ctx: ctx, cancel: cancel,
			closed: make(chan struct{}), done: make(chan struct{}),
		}
		l.lanes[key] = n
		l.wg.Add(1)
		go func() { defer l.wg.Done(); l.runLane(n) }()
	}
	if d != nil {
		n.queue = append(n.queue, d)
	} else {
		n.woken[w.of()] = w
	}
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// runLane works until the lane is empty or closed.
func (l *Loop) runLane(n *lane) {
	defer close(n.done)
	defer n.cancel()
	defer l.waitsFor(n, "")
	backoff, w := newBackoff(), work{}
	for l.collect(n, &w) {
		if !l.pace(n, &w) {
			continue
		}
		err := l.turn(n, w)
		if err == nil {
			for _, d := range w.batch {
				l.answer(d, true)
			}
			backoff, w = newBackoff(), work{}
			continue
		}
		w.batch = l.answerEnded(w.batch)
		if n.ctx.Err() == nil {
			w.count(intent.Of(err))
		}
		n.waitForRetry(w.attempts, backoff.Step())
		if n.ctx.Err() != nil {
			l.mu.Lock()
			n.close()
			l.mu.Unlock()
		}
	}
}

// answerEnded acknowledges the commands of a batch that have ended, although their turn has not, and returns the rest: the next command
// of a partition is delivered only then, and must not wait for a fact that can't be worked on now.
func (l *Loop) answerEnded(batch []*delivery) []*delivery {
	return slices.DeleteFunc(batch, func(d *delivery) bool {
		if d.ended {
			l.answer(d, true)
		}
		return d.ended
	})
}

// collect adds to w what has come to the lane. It returns false when the lane is over: there is nothing to do, or the partition
// is given up, in which case it hands back the events.
func (l *Loop) collect(n *lane, w *work) bool {
	l.mu.Lock()
	w.batch = append(w.batch, n.queue...)
	n.queue = nil
	for of, wake := range n.woken {
		if i := slices.IndexFunc(w.wakes, func(before Wake) bool { return before.of() == of }); i >= 0 {
			w.wakes[i] = wake
		} else {
			w.wakes = append(w.wakes, wake)
		}
	}
	clear(n.woken)
	select {
	case <-n.news:
	default:
	}
	closed := n.isClosed()
	over := closed || len(w.batch) == 0 && len(w.wakes) == 0
	if over {
		delete(l.lanes, n.key)
	}
	l.mu.Unlock()
	if closed {
		for _, d := range w.batch {
			l.answer(d, false)
		}
	}
	return !over
}

// waitForRetry waits before the next try: until the backoff is over, the lane ends, or something comes that may be what was missing.
// That is tried at once at first, and then no more often than once a second, so that it is never a load.
func (n *lane) waitForRetry(attempts int, backoff time.Duration) {
	wait := time.NewTimer(backoff)
	select {
	case <-n.closed:
	case <-n.ctx.Done():
	case <-wait.C:
	case <-n.news:
		wait.Reset(min(time.Duration(attempts)*50*time.Millisecond, time.Second))
		select {
		case <-n.closed:
		case <-n.ctx.Done():
		case <-wait.C:
		}
	}
}

// waitsFor notes which dependency a lane waits for, empty for none. The last lane that stops waiting for a dependency reports
// that it is back.
func (l *Loop) waitsFor(n *lane, dependency string) {
	l.mu.Lock()
	before := n.away
	n.away = dependency
	others := before == ""
	for _, other := range l.lanes {
		if others {
			break
		}
		others = other.away == before
	}
	l.mu.Unlock()
	if !others {
		l.health.Up(before)
	}
}
