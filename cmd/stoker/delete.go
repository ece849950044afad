package main

// stoker delete: delete tenants, DataStores and KubeconfigGenerators by event.

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
	var expected int64
	c := &cobra.Command{
		Use:   "delete (KIND/NAME | NAME | -f FILE)",
		Short: "Delete tenants and everything of them, DataStores or KubeconfigGenerators",
		Long: `delete publishes one event for each object, as a portal would. A tenant's data, keys and pods are removed for good; its
last status says what was removed, and what could not be. A DataStore goes once no tenant uses it, a KubeconfigGenerator with
the kubeconfigs it made.`,
		Example: `  # Delete a tenant and wait until nothing of it is left
  stoker delete tcp/demo --wait

  # What a file created
  stoker delete -f tenant.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			objects, err := a.named(args)
			if err != nil {
				return err
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
			if expected != anyGeneration && len(objects) != 1 {
				return usagef("--expected-generation is for one object, and here are %d", len(objects))
			}
			return a.delete(cmd.Context(), objects, expected, wait, timeout)
		},
		ValidArgsFunction: a.complete,
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "`file` or directory with the objects to delete, - for standard input; may be repeated")
	c.Flags().BoolVar(&wait, "wait", false, "follow tenants until nothing of them is left")
	c.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "how long to --wait")
	expecting(c, &expected)
	return c
}

func (a *app) delete(ctx context.Context, objects []manifest.Object, expected int64, wait bool, timeout time.Duration) error {
	return a.commandAll(ctx, objects, wait, timeout, commanding{
		command: func(manifest.Object) command {
			return command{verb: event.Delete, data: event.DeleteCommand{}, expected: expected}
		},
		wait: func(ctx context.Context, f following, out func(follow.Line)) error {
			last, err := follow.UntilDeleted(ctx, f.feed, f.accepted.UID, out)
			if err != nil {
				return f.late(ctx, err, "not gone")
			}
			if len(last.Left) > 0 {
				a.sayf(a.err, "Left behind, remove it by hand:\n  %s\n", strings.Join(last.Left, "\n  "))
			}
			return nil
		},
	})
}
