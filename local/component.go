package local

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/stoker-k8s/stoker/local/process"
)

const (
	componentLogLimit   = 50 << 20
	componentBackoff    = 500 * time.Millisecond
	componentBackoffMax = 30 * time.Second
	componentSteady     = time.Minute // after so long a run, the next restart is quick again
)

// A Component is a process of the stack's own: it is started again when it ends by itself. Its methods are safe for
// concurrent use.
type Component struct {
	Name string

	spec  process.Spec
	grace time.Duration
	log   *slog.Logger
	ended chan struct{} // closed when the stack has stopped it for good

	mu      sync.Mutex
	want    bool
	process *process.Process
	exits   int           // how often it ended by itself
	news    chan struct{} // closed at each change, and replaced
}

func newComponent(name string, spec process.Spec, grace time.Duration, log *slog.Logger) *Component {
	return &Component{
		Name: name, spec: spec, grace: grace, log: log.With("component", name),
		ended: make(chan struct{}), news: make(chan struct{}), want: true,
	}
}

// change changes the component's state and tells all who wait.
func (c *Component) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.news)
	c.news = make(chan struct{})
}

// await waits until the state is as asked for.
func (c *Component) await(ctx context.Context, ok func() bool) error {
	for {
		c.mu.Lock()
		done, news := ok(), c.news
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ended:
			return fmt.Errorf("%s has ended with its stack", c.Name)
		case <-news:
		}
	}
}

// run keeps the component as it is wanted until ctx ends.
func (c *Component) run(ctx context.Context) {
	defer close(c.ended)
	backoff := componentBackoff
	for {
		if c.await(ctx, func() bool { return c.want }) != nil {
			return
		}
		_ = process.Rotate(c.spec.Log, componentLogLimit)
		p, err := process.Start(c.spec)
		if err != nil {
			c.log.Error("component can't be started", "error", err, "again", backoff)
		} else {
			c.change(func() { c.process = p })
			stopped := c.watch(ctx, p)
			c.change(func() {
				c.process = nil
				if !stopped {
					c.exits++
				}
			})
			if ctx.Err() != nil {
				return
			}
			if stopped {
				backoff = componentBackoff
				continue
			}
			if time.Since(p.Started()) > componentSteady {
				backoff = componentBackoff
			}
			c.log.Warn("component ended by itself, starting it again", "code", p.Exit().Code, "after", backoff, "log", c.spec.Log)
		}
		pause, cancel := context.WithTimeout(ctx, backoff)
		_ = c.await(pause, func() bool { return !c.want })
		cancel()
		backoff = min(2*backoff, componentBackoffMax)
	}
}

// watch waits until the process ends by itself, or is stopped because it isn't wanted any more.
func (c *Component) watch(ctx context.Context, p *process.Process) (stopped bool) {
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.Done():
			cancel()
		case <-life.Done():
		}
	}()
	if c.await(life, func() bool { return !c.want }) == nil || ctx.Err() != nil {
		p.Stop(context.WithoutCancel(ctx), c.grace)
		return true
	}
	return false
}

// Start has a stopped component run again, and returns when its process exists.
func (c *Component) Start(ctx context.Context) error {
	c.change(func() { c.want = true })
	return c.await(ctx, func() bool { return c.process != nil })
}

// Stop ends the component and keeps it from running until Start. It returns when its process is gone.
func (c *Component) Stop(ctx context.Context) error {
	c.change(func() { c.want = false })
	err := c.await(ctx, func() bool { return c.process == nil })
	if err != nil && ctx.Err() != nil {
		_ = c.Signal(syscall.SIGKILL)
	}
	return err
}

// Kill kills the component's process; it is started again like one that ended by itself.
func (c *Component) Kill() error { return c.Signal(syscall.SIGKILL) }

// Pause stops the component's process where it is, until Resume.
func (c *Component) Pause() error { return c.Signal(syscall.SIGSTOP) }

// Resume lets a paused component go on.
func (c *Component) Resume() error { return c.Signal(syscall.SIGCONT) }

// Signal sends a signal to the component's process. It fails if there is none.
func (c *Component) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return fmt.Errorf("%s isn't running", c.Name)
	}
	return c.process.Signal(sig)
}

// PID returns the id of the component's process, or 0.
func (c *Component) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return 0
	}
	return c.process.PID()
}

// giveUp returns an error once the component has ended by itself a few times: it isn't going to work.
func (c *Component) giveUp() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exits < 4 {
		return nil
	}
	text, _ := os.ReadFile(c.spec.Log)
	if len(text) > 2000 {
		text = text[len(text)-2000:]
	}
	return fmt.Errorf("%s ended %d times by itself; the end of %s:\n%s", c.Name, c.exits, c.spec.Log, text)
}

// add makes a component part of the stack and starts it.
func (s *Stack) add(c *Component) {
	s.mu.Lock()
	s.components = append(s.components, c)
	s.mu.Unlock()
	go c.run(s.ctx)
}

// Component returns one of the stack's own processes, or nil: kube-apiserver, kube-controller-manager, kube-scheduler,
// etcd-management, and <driver>-<name> for every DataStore.
func (s *Stack) Component(name string) *Component {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.components {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Components returns all of the stack's own processes, in the order in which they were started.
func (s *Stack) Components() []*Component {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Component(nil), s.components...)
}
