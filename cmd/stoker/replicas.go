package main

// stoker replicas: which replicas of which service there are, and what they hold; stoker resync: a look at tenants.

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func replicasCommand(a *app) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "replicas [SERVICE]",
		Short: "List the services' replicas: what they hold, whether they are ready",
		Long: `replicas lists the replicas of each service: which build they are, whether they are ready, when they were heard last, and which of
the 16 partitions they hold. One that holds partitions and doesn't answer is silent: others take over within seconds.

Exit code 1: a service has no replica that answers, or one is silent or not ready. capi, which is for Cluster API alone, and
tenantaddons, which is for TenantAddons alone, may have none, unless they are named.`,
		Example: `  stoker replicas
  stoker replicas certs -o wide`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			return a.asking(cmd, func(ctx context.Context, bus *events.Bus) error {
				reply, err := follow.Replicas(ctx, bus, strings.Join(args, ""))
				if err != nil {
					return err
				}
				return a.showReplicas(format, reply, len(args) > 0)
			})
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "", "table, wide, json, yaml or name")
	return c
}

// showReplicas writes replicas, of all services or of the one that was named; what isn't well is an error, which is said already.
func (a *app) showReplicas(format string, reply event.ReplicasReply, named bool) error {
	var names []string
	well := true
	for _, r := range reply.Replicas {
		names = append(names, r.Service+"/"+r.Replica)
		well = well && r.Ready && !r.Silent
	}
	if err := write(a.out, format, reply, names, func(wide bool) [][]string { return replicaRows(reply.Replicas, wide) }); err != nil {
		return err
	}
	for _, service := range reply.Missing {
		if name.Optional(service) && !named {
			continue // this installation may do without it
		}
		well = false
		a.complain(fmt.Errorf("no replica of %s answers: is one running, and does it reach NATS?", service))
	}
	if !well {
		return errReported
	}
	return nil
}

func replicaRows(replicas []event.Replica, wide bool) [][]string {
	head := []string{"SERVICE", "REPLICA", "READY", "HEARTBEAT", "PARTITIONS", "VERSION"}
	if wide {
		head = append(head, "HOLDS", "AWAY")
	}
	rows := [][]string{head}
	for _, r := range replicas {
		ready, heard := strconv.FormatBool(r.Ready), "-"
		if r.Silent {
			ready = "silent"
		}
		if !r.Heartbeat.IsZero() {
			heard = duration.HumanDuration(max(time.Since(r.Heartbeat), 0))
		}
		row := []string{r.Service, r.Replica, ready, heard, strconv.Itoa(len(r.Partitions)), dash(r.Version)}
		if wide {
			var holds []string
			for _, h := range r.Partitions {
				holds = append(holds, strconv.Itoa(h.Partition))
			}
			row = append(row, dash(strings.Join(holds, ",")), dash(strings.Join(r.Away, ",")))
		}
		rows = append(rows, row)
	}
	return rows
}

func resyncCommand(a *app) *cobra.Command {
	var format string
	var all bool
	c := &cobra.Command{
		Use:   "resync [NAME]",
		Short: "Have every service look at a tenant anew",
		Long: `resync has every service compare all of its part of a tenant with what is there, as it does once a day, and put right what isn't as
it must be. With -n alone it is for all tenants of that namespace, with --all for all there are: one after the other, five a second.`,
		Example: `  stoker resync demo
  stoker resync -n team-a
  stoker resync --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := event.ResyncQuery{Namespace: a.namespace, All: all}
			switch {
			case format != "" && format != "json" && format != "yaml":
				return usagef("-o %s: must be json or yaml", format)
			case all && (len(args) > 0 || a.namespace != ""):
				return usagef("--all is for all tenants: leave out the name and -n")
			case len(args) == 1:
				key, err := a.tenant(args[0])
				if err != nil {
					return err
				}
				q.Namespace, q.Name = key.Namespace, key.Name
			case !all && a.namespace == "":
				return usagef("name a tenant, or a namespace with -n, or say --all")
			}
			return a.asking(cmd, func(ctx context.Context, bus *events.Bus) error { return a.resync(ctx, bus, q, format) })
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all tenants")
	c.Flags().StringVarP(&format, "output", "o", "", "json or yaml for programs")
	return c
}

func (a *app) resync(ctx context.Context, bus *events.Bus, q event.ResyncQuery, format string) error {
	reply, err := follow.Resync(ctx, bus, q)
	switch {
	case err != nil:
		return err
	case format != "":
		return write(a.out, format, reply, nil, nil)
	case reply.Asked == 1:
		a.sayf(a.out, "1 tenant is looked at\n")
	default:
		a.sayf(a.out, "%d tenants are looked at, the last at %s\n", reply.Asked, reply.Until.Local().Format(time.TimeOnly))
	}
	return nil
}
