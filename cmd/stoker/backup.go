package main

// stoker backup, stoker backups: what tenants keep, out to a location, and what is there.

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func backupCommand(a *app) *cobra.Command {
	var to string
	c := &changing{a: a, tenants: true, commanding: commanding{wait: untilBackedUp, done: func(event.IntakeAccepted) string { return "is to be backed up" }}}
	c.data = func() (any, error) { return event.BackupCommand{Location: to}, nil }
	cmd := c.command(event.Backup, "Make backups of tenants",
		`backup has all that tenants keep, and their keys, written to a location of backups, each as it is at one moment, encrypted. Tenants work on meanwhile.
A location is a Secret in `+name.SystemNamespace+` of the type stoker.dev/backup-location (see docs/backup.md). With --to, it is the tenants' from then on.

A backup that can't be made is tried again, in the background: `+"`stoker watch`"+` shows it. With --wait, exit code 1 says that the first try failed.`,
		`  stoker backup demo --to offsite --wait
  stoker backups demo`, "backed up, or can't be")
	cmd.Flags().StringVar(&to, "to", "", "`location`, the name of its Secret; without it, the one that the tenants have")
	return cmd
}

// untilBackedUp waits until the tenant's backup is made.
func untilBackedUp(ctx context.Context, f following, out func(follow.Line)) error {
	return f.late(ctx, follow.UntilBackedUp(ctx, f.feed, out), "not backed up")
}

func backupsCommand(a *app) *cobra.Command {
	var format, location string
	c := &cobra.Command{
		Use:   "backups [TENANT]",
		Short: "List backups in a location",
		Long: `backups lists the backups of a tenant in its location, or in the one that --location names; without a tenant, of all tenants, those
that are gone included. What it calls a backup is what stoker restore takes.

Exit code 1: some can't be read.`,
		Example: `  stoker backups demo
  stoker backups --location offsite -o json`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			if len(args) == 0 && location == "" {
				return usagef("name a tenant, or a location with --location")
			}
			return a.backups(cmd.Context(), args, location, format)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "", "wide, json, yaml or name")
	c.Flags().StringVar(&location, "location", "", "`location`, the name of its Secret; without it, the tenant's")
	return c
}

// backups lists those of a tenant, or of all.
func (a *app) backups(ctx context.Context, args []string, location, format string) error {
	var key events.Key
	if len(args) == 1 {
		var err error
		if key, err = a.tenant(args[0]); err != nil {
			return err
		}
		if location == "" {
			if location, err = a.locationOf(ctx, key); err != nil {
				return err
			}
		}
	}
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	reply, err := follow.Backups(ctx, bus, location, key)
	if err != nil {
		return err
	}
	if err := showBackups(a, reply, format); err != nil {
		return err
	}
	if reply.More > 0 {
		a.sayf(a.err, "and %d more; name a tenant\n", reply.More)
	}
	for _, u := range reply.Unreadable {
		a.sayf(a.err, "unreadable: %s\n", u)
	}
	if len(reply.Unreadable) > 0 {
		return errReported
	}
	return nil
}

// locationOf is where a tenant's backups go.
func (a *app) locationOf(ctx context.Context, key events.Key) (string, error) {
	k, err := a.kube()
	if err != nil {
		return "", err
	}
	defer k.Close()
	tenants, err := one(ctx, k, key)
	if err != nil {
		return "", err
	}
	if location := tenants[0].Annotations[name.AnnotationBackupLocation]; location != "" {
		return location, nil
	}
	return "", usagef("tenant %s has no annotation %s; name a location with --location", key, name.AnnotationBackupLocation)
}

func showBackups(a *app, reply event.BackupsReply, format string) error {
	names := make([]string, len(reply.Backups))
	for i, b := range reply.Backups {
		names[i] = backupName(b)
	}
	return write(a.out, format, reply.Backups, names, func(wide bool) [][]string {
		rows := [][]string{{"BACKUP", "AGE", "KEYS", "BYTES", "SIZE", "VERSION"}}
		if wide {
			rows[0] = append(rows[0], "DATASTORE", "DRIVER", "REVISION", "SCHEDULED", "TOOK")
		}
		for i, b := range reply.Backups {
			row := []string{
				names[i], duration.HumanDuration(time.Since(b.Ended)), strconv.FormatInt(b.Keys, 10), name.Bytes(b.Bytes), name.Bytes(b.Size),
				dash(b.Kubernetes),
			}
			if wide {
				row = append(row, dash(b.DataStore), dash(b.Driver), strconv.FormatInt(b.Revision, 10), strconv.FormatBool(b.Scheduled),
					b.Ended.Sub(b.Began).Round(time.Millisecond).String())
			}
			rows = append(rows, row)
		}
		return rows
	})
}

// backupName is what a backup is called: location/namespace/name/ID.
func backupName(b event.BackupThere) string {
	return b.Location + "/" + b.Namespace + "/" + b.Name + "/" + b.ID
}
