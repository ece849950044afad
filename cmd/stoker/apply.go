package main

// stoker apply: create and change tenants and DataStores by event.

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// defaultTimeout is how long --wait waits.
const defaultTimeout = 5 * time.Minute

func applyCommand(a *app) *cobra.Command {
	var files []string
	var wait bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or change tenants and DataStores",
		Long: `apply publishes one event for each object, exactly as a portal would, and prints what intake answers: accepted, or
rejected with the field, the rule and the value at fault.`,
		Example: `  # Create a tenant and follow it until it is Ready
  stoker apply -f tenant.yaml --wait

  # Several objects, from a directory or a pipe
  stoker apply -f tenants/
  kustomize build . | stoker apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, err := read(files, a)
			if err != nil {
				return err
			}
			return a.apply(cmd.Context(), objects, wait, timeout)
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "`file` or directory with YAML or JSON, - for standard input; may be repeated")
	c.Flags().BoolVar(&wait, "wait", false, "follow tenants until they are Ready")
	c.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "how long to --wait")
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
	object     manifest.Object
	feed       *follow.Feed
	generation int64
	uid        string
}

func (a *app) apply(ctx context.Context, objects []manifest.Object, wait bool, timeout time.Duration) error {
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	return a.commandAll(ctx, bus, objects, wait, timeout, commanding{
		send: func(ctx context.Context, o manifest.Object) (string, following, error) {
			what, about, err := send(ctx, bus, o, o.Apply(), o.Data)
			return what, following{object: o, generation: about.Generation, uid: about.UID}, err
		},
		wait: func(ctx context.Context, f following, out func(follow.Line)) error {
			_, err := follow.UntilReady(ctx, f.feed, f.generation, out)
			return late(ctx, err, "%s is not Ready after %s; `stoker why %s -n %s` says what it waits for", f.object, timeout, f.object.Key.Name, f.object.Key.Namespace)
		},
	})
}

// commanding is what apply and delete do differently.
type commanding struct {
	send func(context.Context, manifest.Object) (string, following, error)
	wait func(context.Context, following, func(follow.Line)) error
}

// commandAll sends a command for each object in order, then waits for all tenants side by side. A refused object does not
// keep the others from being sent.
func (a *app) commandAll(ctx context.Context, bus *events.Bus, objects []manifest.Object, wait bool, timeout time.Duration, c commanding) error {
	var failed error
	report := func(err error) {
		a.complain(err)
		// A refusal weighs more than what was merely not done in time.
		if t := (*timeoutError)(nil); failed == nil || errors.As(failed, &t) {
			failed = err
		}
	}
	var follows []following
	for _, o := range objects {
		// Opened before the command is sent: nothing that follows is missed.
		var feed *follow.Feed
		if wait && o.Key.IsTenant() {
			var err error
			if feed, err = follow.Open(ctx, bus, o.Key, follow.Options{}); err != nil {
				return err
			}
			defer feed.Close()
		}
		what, f, err := c.send(ctx, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			report(err)
			continue
		}
		if f.generation > 0 {
			a.sayf(a.out, "%s %s (generation %d)\n", o, what, f.generation)
		} else {
			a.sayf(a.out, "%s %s\n", o, what)
		}
		if f.feed = feed; feed != nil {
			follows = append(follows, f)
		}
	}

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
				report(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return told(failed)
}

// told keeps the kind of an error that a person has read already.
func told(err error) error {
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
