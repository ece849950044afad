package tenantaddons

// Installations and removals go on beside the turns: hooks may take longer than a turn may. A tenant has one at a time.

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/release"
)

// jobPatience is how long the turn that starts a job waits for its end before it leaves it alone; most are done by then.
const jobPatience = 3 * time.Second

// jobOf is what a job is about: an AddonRelease, and the inputs that are installed, or removal.
type jobOf struct {
	release types.NamespacedName
	inputs  string
}

// removal is the inputs of a job that removes.
const removal = "removal"

// job installs or removes something. Its goroutine ends with the connection to the tenant; what it writes is fenced as its turn was.
type job struct {
	of     jobOf
	cancel context.CancelFunc
	// done is closed at the end; in and err are read after that.
	done chan struct{}
	in   *release.Installed
	err  error
}

// do has a job done and returns what came of it. errBusy while it goes on, or another one does, which is ended if it is about the same release: the
// tenant is woken at its end.
func (w *work) do(ctx context.Context, of jobOf, hooked bool, run func(context.Context) (*release.Installed, error)) (*release.Installed, error) {
	c := w.in
	c.mu.Lock()
	j := c.job
	c.mu.Unlock()
	if j != nil && j.of != of {
		select {
		case <-j.done: // nobody asks for it any more
			c.collect(j)
			j = nil
		default:
			if j.of.release == of.release {
				j.cancel()
			}
			return nil, errBusy
		}
	}
	patience := time.Duration(0)
	if j == nil {
		if j = w.start(ctx, of, hooked, run); j == nil {
			w.turn.Alarm(time.Second, loop.Wake{Kind: wakeLook})
			return nil, errBusy
		}
		patience = jobPatience
	}
	select {
	case <-j.done: // also when there is no patience
		c.collect(j)
		return j.in, j.err
	default:
	}
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-j.done:
		c.collect(j)
		return j.in, j.err
	case <-wait.C:
	case <-ctx.Done():
	}
	return nil, errBusy
}

// collect forgets a job that is done.
func (c *tenant) collect(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.job == j {
		c.job = nil
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
		close(j.done)
		if wake != nil {
			wake(key, loop.Wake{Kind: wakeInside})
		}
	}()
	return j
}
