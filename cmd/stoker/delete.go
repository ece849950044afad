package main

// stoker delete: delete tenants and DataStores by event.

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
)

func deleteCommand(a *app) *cobra.Command {
	var files []string
	var wait bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "delete (KIND/NAME | NAME | -f FILE)",
		Short: "Delete tenants and everything of them, or DataStores",
		Long: `delete publishes one event for each object, as a portal would. A tenant's data, keys and pods are removed for good; its
last status says what was removed, and what could not be. A DataStore goes once no tenant uses it.`,
		Example: `  # Delete a tenant and wait until nothing of it is left
  stoker delete tcp/demo --wait

  # What a file created
  stoker delete -f tenant.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var objects []manifest.Object
			for _, arg := range args {
				o, err := manifest.Named(arg, a.ns())
				if err != nil {
					return &usageError{err}
				}
				objects = append(objects, o)
			}
			if len(files) > 0 {
				more, err := read(files, a)
				if err != nil {
					return err
				}
				objects = append(objects, more...)
			}
			if len(objects) == 0 {
				return usagef("name what to delete: KIND/NAME, or -f FILE")
			}
			return a.delete(cmd.Context(), objects, wait, timeout)
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "`file` or directory with the objects to delete, - for standard input; may be repeated")
	c.Flags().BoolVar(&wait, "wait", false, "follow tenants until nothing of them is left")
	c.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "how long to --wait")
	return c
}

func (a *app) delete(ctx context.Context, objects []manifest.Object, wait bool, timeout time.Duration) error {
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	return a.commandAll(ctx, bus, objects, wait, timeout, commanding{
		send: func(ctx context.Context, o manifest.Object) (string, following, error) {
			what, about, err := send(ctx, bus, o, o.Delete(), event.DeleteCommand{})
			return what, following{object: o, generation: about.Generation, uid: about.UID}, err
		},
		wait: func(ctx context.Context, f following, out func(follow.Line)) error {
			last, err := follow.UntilDeleted(ctx, f.feed, f.uid, out)
			if err != nil {
				return late(ctx, err, "%s is not gone after %s; `stoker why %s -n %s` says what it waits for", f.object, timeout, f.object.Key.Name, f.object.Key.Namespace)
			}
			if len(last.Left) > 0 {
				a.sayf(a.err, "Left behind, remove it by hand:\n  %s\n", strings.Join(last.Left, "\n  "))
			}
			return nil
		},
	})
}
