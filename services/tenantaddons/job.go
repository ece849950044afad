package tenantaddons

// Installations and removals go on beside the turns: hooks may take longer than a turn may. A tenant has one at a time.

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/release"
)

// jobOf is what a job is about: an AddonRelease, and the inputs that are installed, or removal.
type jobOf struct {
	release types.NamespacedName
	inputs  string
}

// The inputs of jobs that remove, with the chart's hooks or without, and of those that leave what there is.
const (
	removal        = "removal"
	removalNoHooks = "removal without hooks"
	leaving        = "leaving"
)

// job installs or removes something. Its goroutine ends with the connection to the tenant; what it writes is fenced as its turn was.
type job struct {
	of     jobOf
	cancel context.CancelFunc
	// done is closed at the end; ended, in and err are read after that.
	done  chan struct{}
	ended time.Time
	in    *release.Installed
	err   error
	// cancelled says that it was ended because something else is asked for, left that no turn waits for it: its end wakes the tenant. Both are
	// guarded by the connection's mu.
	cancelled, left bool
}

// outdated reports whether what came of a job says nothing any more: it was ended early, or has failed long before anybody asks.
func (j *job) outdated(now time.Time) bool {
	return j.cancelled || j.err != nil && now.Sub(j.ended) > 2*jobPatience
}

// do has a job done and returns what came of it. errBusy while it goes on, or another one does, which is ended if it is about the same release: the
// tenant is woken at its end.
func (w *work) do(ctx context.Context, of jobOf, hooked bool, run func(context.Context) (*release.Installed, error)) (*release.Installed, error) {
	c := w.in
	j, busy := c.running(of, w.now)
	if busy {
		return nil, errBusy
	}
	patience := time.Duration(0)
	if j == nil {
		if j = w.start(ctx, of, hooked, run); j == nil {
			w.turn.Alarm(time.Second, loop.Wake{Kind: wakeLook})
			return nil, errBusy
		}
		patience = jobPatience
	}
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-j.done:
	case <-wait.C:
	case <-ctx.Done():
	}
	if c.leave(j) {
		return nil, errBusy
	}
	return j.in, j.err
}

// running is the job that is about the same, whether it is done or not; nil for none. busy says that another one goes on: one about the same
// release is ended.
func (c *tenant) running(of jobOf, now time.Time) (j *job, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.job != nil && c.job.isDone() { // it makes room for the next one
		c.done[c.job.of.release], c.job = c.job, nil
	}
	if j = c.done[of.release]; j != nil {
		if delete(c.done, of.release); j.of == of && !j.outdated(now) {
			return j, false
		}
	}
	if j = c.job; j == nil {
		return nil, false
	}
	if j.of.release == of.release && j.of != of && !j.cancelled {
		j.cancelled = true
		j.cancel()
	}
	j.left = true
	return j, j.of != of || j.cancelled
}

// leave leaves a job alone, unless it is done; then it is forgotten.
func (c *tenant) leave(j *job) (left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !j.isDone() {
		j.left = true
		return true
	}
	if c.job == j {
		c.job = nil
	}
	return false
}

// isDone reports whether a job has ended.
func (j *job) isDone() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// start starts a job; nil when too many go on, or the connection is over.
func (w *work) start(ctx context.Context, of jobOf, hooked bool, run func(context.Context) (*release.Installed, error)) *job {
	places := []chan struct{}{w.jobs}
	if hooked {
		places = append(places, w.hooked)
	}
	taken := 0
	free := func() {
		for _, p := range places[:taken] {
			<-p
		}
	}
	for _, p := range places {
		select {
		case p <- struct{}{}:
			taken++
		default:
			free()
			return nil
		}
	}
	w.mu.Lock()
	wake := w.wake
	w.mu.Unlock()
	key, c := w.turn.Key, w.in
	// The turn's fence stays, its end doesn't count.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	j := &job{of: of, cancel: cancel, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		cancel()
		free()
		return nil
	}
	c.job = j
	go func() {
		defer cancel()
		j.in, j.err = run(ctx)
		free()
		c.mu.Lock()
		j.ended = time.Now()
		close(j.done)
		left := j.left
		c.mu.Unlock()
		if left && wake != nil {
			wake(key, loop.Wake{Kind: wakeInside})
		}
	}()
	return j
}
