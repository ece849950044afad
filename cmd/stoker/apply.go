package main

// stoker apply: create and change tenants, DataStores and KubeconfigGenerators by event.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// defaultTimeout is how long --wait waits.
const defaultTimeout = 5 * time.Minute

func applyCommand(a *app) *cobra.Command {
	var files []string
	var wait bool
	var timeout time.Duration
	var expected int64
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or change tenants, DataStores and KubeconfigGenerators",
		Long: `apply publishes one event for each object, exactly as a portal would, and prints what intake answers: accepted, or
rejected with the field, the rule and the value at fault.`,
		Example: `  # Create a tenant and follow it until it is Ready
  stoker apply -f tenant.yaml --wait

  # Several objects, from a directory or a pipe
  stoker apply -f tenants/
  kustomize build . | stoker apply -f -

  # Only if nobody changed the tenant since generation 3; only if there is no such tenant
  stoker apply -f tenant.yaml --expected-generation 3
  stoker apply -f tenant.yaml --expected-generation 0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, err := read(files, a)
			if err != nil {
				return err
			}
			if expected != anyGeneration && len(objects) != 1 {
				return usagef("--expected-generation is for one object, and here are %d", len(objects))
			}
			return a.apply(cmd.Context(), objects, expected, wait, timeout)
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "`file` or directory with YAML or JSON, - for standard input; may be repeated")
	c.Flags().BoolVar(&wait, "wait", false, "follow tenants until they are Ready")
	c.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "how long to --wait")
	expecting(c, &expected)
	return c
}

// read reads the objects of -f; what is wrong with them is a mistake in the command line.
func read(files []string, a *app) ([]manifest.Object, error) {
	if len(files) == 0 {
		return nil, usagef("name a file with -f FILE, or - for standard input")
	}
	objects, err := manifest.Read(files, a.in, a.ns())
	if err != nil {
		return nil, &usageError{err}
	}
	return objects, nil
}

// following is a tenant that is waited for.
type following struct {
	object   manifest.Object
	feed     *follow.Feed
	accepted portal.Accepted
	timeout  time.Duration
}

func (a *app) apply(ctx context.Context, objects []manifest.Object, expected int64, wait bool, timeout time.Duration) error {
	return a.commandAll(ctx, objects, wait, timeout, commanding{
		command: func(o manifest.Object) command { return command{verb: event.Apply, data: o.Data, expected: expected} },
		wait:    untilReady,
	})
}

// untilReady waits until the tenant's generation, or a later one, is Ready or asleep.
func untilReady(ctx context.Context, f following, out func(follow.Line)) error {
	_, err := follow.UntilReady(ctx, f.feed, f.accepted, out)
	return f.late(ctx, err, "not Ready")
}

// late says what a tenant is not yet at the end of a person's patience.
func (f following) late(ctx context.Context, err error, what string) error {
	return late(ctx, err, "%s is %s after %s; `stoker why %s -n %s` says what it waits for",
		f.object, what, f.timeout, f.object.Key.Name, f.object.Key.Namespace)
}

// commanding is what commands do differently.
type commanding struct {
	command func(manifest.Object) command
	// done says what was done of an object, in place of the answer's own word; may be nil.
	done func(event.IntakeAccepted) string
	wait func(context.Context, following, func(follow.Line)) error
}

// commandAll sends a command for each object in order, then waits for all tenants side by side. A refused object does not
// keep the others from being sent.
func (a *app) commandAll(ctx context.Context, objects []manifest.Object, wait bool, timeout time.Duration, c commanding) error {
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	client, err := portal.New(bus.Conn(), "/stoker/"+events.UserOperator)
	if err != nil {
		return err
	}
	r := &report{app: a}
	var follows []following
	end := time.Now().Add(timeout)
	for _, o := range objects {
		f := following{object: o, timeout: timeout}
		// Opened before the command is sent: nothing that follows is missed.
		if wait && o.Key.IsTenant() {
			if f.feed, err = follow.Open(ctx, bus, o.Key, follow.Options{}); err != nil {
				return err
			}
			defer f.feed.Close()
		}
		request := c.command(o)
		request.answer = answerLimit(wait, time.Until(end))
		f.accepted, err = send(ctx, client, o, request)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.add(err)
			continue
		}
		a.sayf(a.out, "%s %s\n", o, c.outcome(f.accepted))
		if f.feed != nil {
			follows = append(follows, f)
		}
	}
	a.waitAll(ctx, follows, timeout, c, r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return reported(r.failed)
}

// outcome says what an accepted command did.
func (c commanding) outcome(answer portal.Accepted) string {
	what := answer.What
	if c.done != nil {
		what = c.done(answer.IntakeAccepted)
	}
	if answer.Generation > 0 {
		what = fmt.Sprintf("%s (generation %d)", what, answer.Generation)
	}
	return what
}

// waitAll waits for tenants side by side, and prints what happens to them.
func (a *app) waitAll(ctx context.Context, follows []following, timeout time.Duration, c commanding, r *report) {
	patience, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, f := range follows {
		prefix := ""
		if len(follows) > 1 {
			prefix = f.object.Key.String() + " "
		}
		printer := a.printer(prefix)
		printer.Out = &lockedWriter{w: a.out, mu: &mu}
		wg.Go(func() {
			if err := c.wait(patience, f, printer.Print); err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				r.add(err)
			}
		})
	}
	wg.Wait()
}

// report tells a person of errors as they come, and keeps the one that counts for the exit code. It is not safe for concurrent use.
type report struct {
	app    *app
	failed error
}

func (r *report) add(err error) {
	r.app.complain(err)
	// A refusal weighs more than what was merely not done in time.
	if t := (*timeoutError)(nil); r.failed == nil || errors.As(r.failed, &t) {
		r.failed = err
	}
}

// reported keeps the kind of an error that a person has read already.
func reported(err error) error {
	var t *timeoutError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &t):
		return errTimedOut
	}
	return errReported
}

// lockedWriter keeps lines of several writers apart.
type lockedWriter struct {
	w  io.Writer
	mu *sync.Mutex
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
