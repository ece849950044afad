package loop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// Somebody may change what a service keeps as it must be, again and again: the administrator of a tenant, a controller that wants
// something else. Each change wakes the service, which puts it right, which may wake the other. So what drifts is put right at
// once at first, and no more often than every driftEvery once that has happened driftBurst times in a row.

const (
	driftBurst = 10
	driftEvery = 10 * time.Second
	// wakeCalm is the wake after which everything of an object that kept drifting is looked at: it doesn't any more.
	wakeCalm = "loop.calm"
	// maxDriftTold is how many of what drifts a failure names.
	maxDriftTold = 3
)

// drifts is how often something of an object drifted lately. It lives until that was so long ago that the bucket is full again.
type drifts struct {
	bucket  *rate.Limiter
	failure *state.Failure // that something drifts again and again, nil while it doesn't
	calm    *time.Timer
}

// Drifted notes that this turn has put right what of its object somebody else had changed or deleted; what names it for people. Once
// that happens again and again it returns true. Until it ends, [Turn.Done] notes it as the failure of an outcome that has no other, and
// the object gets a turn for the sake of watches and alarms every ten seconds only; they are not lost meanwhile. Events get theirs at
// once, as ever. When nothing has drifted for 100 s, the service is to look at everything ([Turn.Due]), and the failure ends.
func (t *Turn) Drifted(what ...string) (often bool) {
	l := t.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.driftsOf(t.Key)
	d.calm.Reset(driftBurst * l.driftEvery)
	d.bucket.Allow()
	if d.failure == nil && d.bucket.Tokens() < 1 {
		l.log.Warn("somebody else changes objects again and again; they are put right at a bounded rate",
			"tenant", t.Key.String(), "objects", what, "every", l.driftEvery)
		slices.Sort(what)
		named := strings.Join(what[:min(len(what), maxDriftTold)], ", ")
		if more := len(what) - maxDriftTold; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		l.tellDrift(d, &state.Failure{Reason: reason.KeepsDrifting, Message: fmt.Sprintf(
			"somebody else changes %s again and again; it is put right every %s, no more often", named, l.driftEvery)})
	}
	return d.failure != nil
}

// Drifting returns the failure that the turn's object drifts again and again, nil when it doesn't, or is to go.
func (t *Turn) Drifting() *state.Failure {
	if t.Tenant != nil && t.Tenant.Deleting {
		return nil
	}
	l := t.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.drifts[t.Key]; d != nil {
		return d.failure
	}
	return nil
}

// driftsOf returns the drifts of an object. Loop.mu is held.
func (l *Loop) driftsOf(key events.Key) *drifts {
	d := l.drifts[key]
	if d == nil {
		d = &drifts{bucket: rate.NewLimiter(rate.Every(l.driftEvery), driftBurst)}
		d.calm = time.AfterFunc(driftBurst*l.driftEvery, func() { l.endDrift(key, d) })
		l.drifts[key] = d
	}
	return d
}

// tellDrift notes that an object drifts again and again, or, by nil, that it doesn't. Loop.mu is held.
func (l *Loop) tellDrift(d *drifts, failure *state.Failure) {
	switch {
	case failure != nil && d.failure == nil:
		l.metrics.drifting.Inc()
	case failure == nil && d.failure != nil:
		l.metrics.drifting.Dec()
	}
	d.failure = failure
}

// noteDrift has a failure that was noted by another replica, or before a restart, end by itself.
func (l *Loop) noteDrift(t *Turn) {
	if t.own == nil || t.own.Failure == nil || t.own.Failure.Reason != reason.KeepsDrifting {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drifts[t.Key] == nil {
		l.tellDrift(l.driftsOf(t.Key), t.own.Failure)
	}
}

// endDrift forgets the drifts of an object that is as it must be for long, and has the failure end.
func (l *Loop) endDrift(key events.Key, d *drifts) {
	l.mu.Lock()
	if l.drifts[key] != d {
		l.mu.Unlock()
		return
	}
	often := d.failure != nil
	l.forgetDrift(key)
	l.mu.Unlock()
	if often {
		l.alarms.wake(key, Wake{Kind: wakeCalm})
	}
}

// forgetDrift forgets the drifts of an object. Loop.mu is held.
func (l *Loop) forgetDrift(key events.Key) {
	d := l.drifts[key]
	d.calm.Stop()
	l.tellDrift(d, nil)
	delete(l.drifts, key)
}

// pace waits until a lane that keeps drifting may have a turn without an event. It returns false when something has come to the lane
// meanwhile, or the lane is over.
func (l *Loop) pace(n *lane, w *work) bool {
	if len(w.batch) > 0 {
		return true
	}
	l.mu.Lock()
	d, after := l.drifts[n.key], time.Duration(0)
	if d != nil {
		after = time.Duration((1 - d.bucket.Tokens()) * float64(l.driftEvery))
	}
	l.mu.Unlock()
	if after <= 0 {
		return true
	}
	wait := time.NewTimer(after)
	defer wait.Stop()
	select {
	case <-n.closed:
		return false
	case <-n.ctx.Done():
		return true // the turn finds out
	case <-n.news:
		return false
	case <-wait.C:
		return true
	}
}
