package main

// stoker datastores orphans: what DataStores keep that is no tenant's, and its removal.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func orphansCommand(a *app) *cobra.Command {
	var format string
	var remove, yes bool
	c := &cobra.Command{
		Use:   "orphans [DATASTORE]",
		Short: "List what DataStores keep that is no tenant's, or remove it",
		Long: `orphans lists the schemas and users on record in DataStores whose owner is no TenantControlPlane of the management cluster, in any
namespace: what a deletion had to leave because the DataStore was away. With --remove it removes them, with all their data, for good.

Does another management cluster use the same database? Then its tenants are orphans here: look at the list before you remove.

Exit code 1: a DataStore could not be looked into, or something was not removed.`,
		Example: `  stoker datastores orphans

  # Remove those of one DataStore, once you have seen and confirmed them
  stoker datastores orphans etcd-1 --remove`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dataStore := strings.Join(args, "")
			switch {
			case format != "" && format != "json":
				return usagef("-o %s: must be json", format)
			case remove && dataStore == "":
				return usagef("--remove is for one DataStore: name it")
			case yes && !remove:
				return usagef("--yes is for --remove")
			case remove && !yes && !terminal(a.in):
				return usagef("--remove asks before it removes, and here is no terminal; with --yes it doesn't ask")
			}
			bus, err := a.bus(cmd.Context())
			if err != nil {
				return err
			}
			defer bus.Close()
			return a.orphans(cmd.Context(), bus, dataStore, format, remove, yes)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "", "json for programs")
	c.Flags().BoolVar(&remove, "remove", false, "remove what is listed, with all its data")
	c.Flags().BoolVar(&yes, "yes", false, "remove without asking")
	return c
}

// orphans shows the orphans of a DataStore, or of all, and removes exactly those if that is wanted.
func (a *app) orphans(ctx context.Context, bus *events.Bus, dataStore, format string, remove, yes bool) error {
	reply, err := follow.Orphans(ctx, bus, dataStore)
	if errors.Is(err, follow.ErrNoDataStore) {
		return fmt.Errorf("%w; `stoker datastores` lists those there are", err)
	}
	if err != nil {
		return err
	}
	if err := showOrphans(a.out, reply, format); err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(reply.Failed)) {
		a.complain(fmt.Errorf("DataStore %s: %s", n, reply.Failed[n]))
	}
	if reply.More > 0 {
		a.sayf(a.err, "and %d more\n", reply.More)
	}
	switch {
	case len(reply.Failed) > 0:
		return errReported
	case len(reply.Orphans) == 0:
		a.sayf(a.err, "no orphans: all that is on record is tenants'\n")
		return nil
	case !remove:
		return nil
	case !yes && !a.confirmed(fmt.Sprintf("Remove these %d from DataStore %s, with all their data, for good? [y/N] ", len(reply.Orphans), dataStore)):
		a.sayf(a.err, "nothing removed\n")
		return nil
	}
	return a.dropOrphans(ctx, bus, dataStore, reply.Orphans)
}

// atOnce is how many orphans are removed with one request, so that what has become of them is said soon.
const atOnce = 10

func (a *app) dropOrphans(ctx context.Context, bus *events.Bus, dataStore string, orphans []event.Orphan) error {
	left := false
	for some := range slices.Chunk(orphans, atOnce) {
		reply, err := follow.DropOrphans(ctx, bus, dataStore, some)
		if err != nil {
			return err
		}
		for _, d := range reply.Dropped {
			what := fmt.Sprintf("schema %s, user %s of %s", dash(d.Schema), dash(d.User), d.Owner)
			if len(d.Removed) > 0 {
				a.sayf(a.out, "removed %s: %s\n", what, follow.Counts(d.Removed))
			}
			if d.Error != "" {
				a.complain(fmt.Errorf("left: %s: %s", what, d.Error))
				left = true
			}
		}
	}
	if left {
		return errReported
	}
	return nil
}

// showOrphans writes orphans as a table, or as JSON.
func showOrphans(w io.Writer, reply event.OrphansReply, format string) error {
	if format == "" && len(reply.Orphans) == 0 {
		return nil
	}
	return write(w, format, reply, nil, func(bool) [][]string {
		rows := [][]string{{"DATASTORE", "SCHEMA", "USER", "OWNER", "BYTES", "KEYS"}}
		for _, o := range reply.Orphans {
			rows = append(rows, []string{o.DataStore, dash(o.Schema), dash(o.User), o.Owner, name.Bytes(o.Bytes), strconv.FormatInt(o.Keys, 10)})
		}
		return rows
	})
}

// terminal reports whether a person is at the other end.
func terminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirmed asks a person.
func (a *app) confirmed(question string) bool {
	a.sayf(a.err, "%s", question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(answer), "y") || strings.EqualFold(strings.TrimSpace(answer), "yes")
}
