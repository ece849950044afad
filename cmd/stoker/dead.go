package main

// stoker dead: dead letters, listed, replayed, dropped.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func deadCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "dead",
		Short: "List, replay or drop dead letters",
		Long: `dead works with dead letters: events that no retry could help. Each lies in NATS for 30 days, with the service that gave it up, and
why.

What was given up is tried again by itself, ten minutes later at first and then ever more rarely.`,
		Example: `  stoker dead list
  stoker dead replay 1207
  stoker dead drop --all --service intake -n team-a`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(deadListCommand(a), deadReplayCommand(a), deadDropCommand(a))
	return c
}

// asking runs a question over a connection to the installation.
func (a *app) asking(cmd *cobra.Command, question func(ctx context.Context, bus *events.Bus) error) error {
	bus, err := a.bus(cmd.Context())
	if err != nil {
		return err
	}
	defer bus.Close()
	return question(cmd.Context(), bus)
}

func deadListCommand(a *app) *cobra.Command {
	var format string
	q := event.DeadListQuery{}
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Example: `  stoker dead list
  stoker dead list --service certs -n team-a --name demo

  # The next page, and each with its event and cause in full
  stoker dead list --before 1207 -o wide`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			q.Namespace = a.namespace
			return a.asking(cmd, func(ctx context.Context, bus *events.Bus) error {
				reply, err := follow.Dead(ctx, bus, q)
				if err != nil {
					return err
				}
				if len(reply.Letters) == 0 && forPeople(format) {
					a.sayf(a.err, "no dead letters\n")
					return nil
				}
				if err := a.showLetters(format, reply, reply.Letters); err != nil {
					return err
				}
				if reply.More && forPeople(format) {
					a.sayf(a.err, "and older ones: --before %d\n", reply.Letters[len(reply.Letters)-1].Sequence)
				}
				return nil
			})
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "", "table, wide, json, yaml or name (the sequences)")
	filterFlags(c, &q.DeadFilter)
	c.Flags().IntVar(&q.Limit, "limit", 0, "how many (default 20, at most 100)")
	c.Flags().Uint64Var(&q.Before, "before", 0, "those before this `sequence`")
	return c
}

func filterFlags(c *cobra.Command, f *event.DeadFilter) {
	c.Flags().StringVar(&f.Service, "service", "", "those that this `service` gave up")
	c.Flags().StringVar(&f.Name, "name", "", "those of objects of this `name`")
}

// showLetters writes dead letters as a table, or what holds them for programs.
func (a *app) showLetters(format string, what any, letters []event.DeadLetter) error {
	var sequences []string
	for _, d := range letters {
		sequences = append(sequences, strconv.FormatUint(d.Sequence, 10))
	}
	return write(a.out, format, what, sequences, func(wide bool) [][]string {
		head := []string{"SEQUENCE", "AGE", "SERVICE", "OBJECT", "REASON", "CAUSE"}
		if wide {
			head = append(head, "TYPE", "ID", "SOURCE", "DELIVERIES")
		}
		rows := [][]string{head}
		for i, d := range letters {
			cause := d.Cause
			if r := []rune(cause); !wide && len(r) > 80 {
				cause = string(r[:79]) + "…"
			}
			age := duration.HumanDuration(max(time.Since(d.Time), 0))
			row := []string{sequences[i], age, d.Service, d.Namespace + "/" + d.Name, dash(d.Reason), dash(cause)}
			if wide {
				row = append(row, dash(d.Type), dash(d.ID), dash(d.Source), strconv.Itoa(d.Deliveries))
			}
			rows = append(rows, row)
		}
		return rows
	})
}

// picked is which letters a command is about: one by its sequence, or all of a filter.
type picked struct {
	event.DeadFilter
	sequence uint64
	all      bool
}

func (p *picked) flags(c *cobra.Command) {
	filterFlags(c, &p.DeadFilter)
	c.Flags().BoolVar(&p.all, "all", false, "all that --service, -n and --name pick")
}

func (p *picked) parse(a *app, args []string) (err error) {
	p.Namespace = a.namespace
	switch {
	case len(args) == 0 && !p.all:
		return usagef("name a dead letter by its sequence (`stoker dead list` shows it), or say --all")
	case len(args) == 1 && (p.all || p.DeadFilter != event.DeadFilter{}):
		return usagef("%s is one dead letter: leave out --all, --service, --name and -n", args[0])
	case len(args) == 0:
		return nil
	}
	if p.sequence, err = strconv.ParseUint(args[0], 10, 64); err != nil || p.sequence == 0 {
		return usagef("%s: must be the sequence of a dead letter, a number that `stoker dead list` shows", args[0])
	}
	return nil
}

func deadReplayCommand(a *app) *cobra.Command {
	var p picked
	var format string
	var force bool
	c := &cobra.Command{
		Use:   "replay [SEQUENCE]",
		Short: "Hand dead letters once more to the service that gave them up",
		Long: `replay hands dead letters once more to the service that gave them up, and to no other, the oldest first, and removes them.

A command is left if its object was changed after it was given up, for it would undo that; --force replays it all the same.

Exit code 1: a letter was left.`,
		Example: `  stoker dead replay 1207
  stoker dead replay --all -n team-a --name demo`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkOutput(format), p.parse(a, args)); err != nil {
				return err
			}
			return a.asking(cmd, func(ctx context.Context, bus *events.Bus) error {
				q := event.DeadReplayQuery{Sequence: p.sequence, DeadFilter: p.DeadFilter, All: p.all, Force: force}
				reply, err := follow.ReplayDead(ctx, bus, q)
				if err != nil {
					return err
				}
				if err := a.showLetters(format, reply, reply.Replayed); err != nil {
					return err
				}
				for _, d := range reply.Left {
					a.complain(fmt.Errorf("left: dead letter %d of %s/%s: %s", d.Sequence, d.Namespace, d.Name, d.Error))
				}
				a.sayMore(reply.More)
				if len(reply.Left) > 0 {
					return errReported
				}
				return nil
			})
		},
	}
	p.flags(c)
	c.Flags().StringVarP(&format, "output", "o", "", "table, wide, json, yaml or name (the sequences) of those that were replayed")
	c.Flags().BoolVar(&force, "force", false, "replay commands that undo a later change, too")
	return c
}

func (a *app) sayMore(more bool) {
	if more {
		a.sayf(a.err, "there are more: say it again\n")
	}
}

func deadDropCommand(a *app) *cobra.Command {
	var p picked
	var format string
	c := &cobra.Command{
		Use:   "drop [SEQUENCE]",
		Short: "Remove dead letters for good",
		Example: `  stoker dead drop 1207
  stoker dead drop --all --service intake -n team-a`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkOutput(format), p.parse(a, args)); err != nil {
				return err
			}
			return a.asking(cmd, func(ctx context.Context, bus *events.Bus) error {
				q := event.DeadDropQuery{Sequence: p.sequence, DeadFilter: p.DeadFilter, All: p.all}
				reply, err := follow.DropDead(ctx, bus, q)
				if err != nil {
					return err
				}
				a.sayMore(reply.More)
				return a.showLetters(format, reply, reply.Dropped)
			})
		},
	}
	p.flags(c)
	c.Flags().StringVarP(&format, "output", "o", "", "table, wide, json, yaml or name (the sequences) of those that were dropped")
	return c
}
