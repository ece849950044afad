package main

// stoker migrate: a tenant's data to another DataStore, while it works; and what that would meet, before it is begun. The moves themselves
// are the datastore service's: here spec.dataStore is changed, and what follows is shown.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// migration is what the command line asks for.
type migration struct {
	to               string
	plan, undo, wait bool
	timeout          time.Duration
	format           string
}

func migrateCommand(a *app) *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use:   "migrate TENANT (--to DATASTORE [--plan] | --undo)",
		Short: "Move a tenant's data to another DataStore, while it works",
		Long: `migrate changes spec.dataStore of a tenant, which moves its data there, of whatever driver: they are copied while the tenant works, and in
the end writes wait for a moment. Its pods are replaced twice. Before, it asks what the move would meet, and stops when something is against
it. With --plan it says just that: how much there is to copy, how long that may take (a rough guess), what is against it and what should be
known. Nothing is written to either database for that.

Asked for again while the data move, it goes on waiting. Until they have moved, --undo leaves them where they are; afterwards, going back is
another move. Ctrl-C ends the waiting, not the move.

Exit codes: 1 something is against the move, or it was undone; 3 the data have not moved in time, and go on moving.`,
		Example: `  stoker migrate demo --to postgres --plan
  stoker migrate demo --to postgres --wait --timeout 2h

  # Leave the data where they are
  stoker migrate demo --undo`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.tenant(args[0])
			if err == nil {
				err = m.check()
			}
			if err != nil {
				return err
			}
			return a.migrate(cmd.Context(), key, m)
		},
	}
	f := c.Flags()
	f.StringVar(&m.to, "to", "", "`DataStore` that the data go to")
	f.BoolVar(&m.plan, "plan", false, "say what the move would meet, and change nothing")
	f.BoolVar(&m.undo, "undo", false, "put spec.dataStore back to the DataStore that the data are in")
	f.BoolVar(&m.wait, "wait", false, "follow the tenant until its data have moved; with --undo, until it is Ready")
	f.DurationVar(&m.timeout, "timeout", time.Hour, "how long to --wait")
	f.StringVarP(&m.format, "output", "o", "", "of the plan: json or yaml for programs")
	return c
}

// check refuses mistakes in the command line.
func (m *migration) check() error {
	switch {
	case m.undo == (m.to != ""):
		return usagef("say where the data go with --to DATASTORE, or --undo")
	case m.to != "" && !events.DataStore(m.to).Valid():
		return usagef("--to %q: can't be the name of a DataStore", m.to)
	case m.plan && (m.undo || m.wait):
		return usagef("--plan changes nothing: leave --undo and --wait out")
	case m.format != "" && !m.plan:
		return usagef("-o %s: only for --plan", m.format)
	case m.format != "" && m.format != "json" && m.format != "yaml":
		return usagef("-o %s: must be json or yaml", m.format)
	}
	return nil
}

func (a *app) migrate(ctx context.Context, key events.Key, m migration) error {
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	if m.plan {
		return a.planMove(ctx, bus, key, m)
	}
	client, err := portal.New(bus.Conn(), "/stoker/"+events.UserOperator)
	if err != nil {
		return err
	}
	if m.undo {
		return a.undoMove(ctx, bus, client, key, m)
	}
	v, err := a.beginMove(ctx, bus, client, key, m.to)
	if err != nil {
		return noTenant(err)
	}
	defer v.feed.Close()
	a.sayf(a.out, "%s\n", v.said)
	if v.done || !m.wait {
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	show := a.printer("").Print
	said, err := v.await(patience, m.timeout, func(l follow.Line) {
		if l.Service == name.ServiceDatastore || l.Mood == follow.Bad {
			show(l)
		}
	})
	if ctx.Err() != nil {
		a.sayf(a.err, "the move goes on; `stoker migrate %s -n %s --undo` leaves the data where they are, until they have moved\n", key.Name, key.Namespace)
		return ctx.Err()
	}
	if err == nil {
		a.sayf(a.out, "%s\n", said)
	}
	return err
}

func noTenant(err error) error {
	if errors.Is(err, follow.ErrNoTenant) {
		return fmt.Errorf("%w; `stoker get` lists those there are", err)
	}
	return err
}

func (a *app) planMove(ctx context.Context, bus *events.Bus, key events.Key, m migration) error {
	p, err := follow.Move(ctx, bus, key, m.to)
	if err != nil {
		return noTenant(err)
	}
	if err := showMove(a.out, p, m.format); err != nil {
		return err
	}
	if p.Blocked {
		return errReported
	}
	return nil
}

// showMove writes what a move would meet for a person, or for programs.
func showMove(w io.Writer, p event.MoveReply, format string) error {
	if format == "" {
		if _, err := io.WriteString(w, headOfMove(p)); err != nil {
			return err
		}
		if len(p.Findings) == 0 {
			_, err := io.WriteString(w, "nothing is against it\n")
			return err
		}
	}
	return write(w, format, event.Marshal(p), nil, func(bool) [][]string {
		rows := [][]string{{"WHAT", "BLOCKS", "MESSAGE"}}
		for _, f := range p.Findings {
			rows = append(rows, []string{f.What, map[bool]string{true: "yes", false: "no"}[f.Blocks], f.Message})
		}
		return rows
	})
}

// headOfMove says in one line what the move is about.
func headOfMove(p event.MoveReply) string {
	store := func(n, driver string) string {
		if driver == "" {
			return dash(n)
		}
		return n + " (" + driver + ")"
	}
	head := fmt.Sprintf("tenant %s/%s: %s to %s", p.Namespace, p.Name, store(p.From, p.FromDriver), store(p.To, p.ToDriver))
	if !p.MeasuredAt.IsZero() {
		head += ", about " + (&state.Move{Keys: p.Keys, Bytes: p.Bytes}).Progress()
	}
	if p.CopySeconds > 0 {
		head += ", copied in some " + (time.Duration(p.CopySeconds) * time.Second).String()
	}
	return head + "\n"
}

// commanded is a move that was asked for.
type commanded struct {
	key        events.Key
	to, from   string
	generation int64
	feed       *follow.Feed
	// done says that the data are there already; said is what is said of it.
	done bool
	said string
}

// beginMove has the data of a tenant move, unless something is against it, they do already, or are there. Close its feed.
func (a *app) beginMove(ctx context.Context, bus *events.Bus, client *portal.Client, key events.Key, to string) (v commanded, err error) {
	// Opened before anything is asked: nothing that follows is missed.
	if v.feed, err = follow.Open(ctx, bus, key, follow.Options{}); err != nil {
		return v, err
	}
	defer func() {
		if err != nil {
			v.feed.Close()
		}
	}()
	v.key, v.to = key, to
	p, err := follow.Move(ctx, bus, key, to)
	switch {
	case errors.Is(err, follow.ErrNoTenant), ctx.Err() != nil:
		return v, err
	case err != nil: // what is against the move then keeps it from being done, or undoes it
		a.sayf(a.err, "%s: what the move would meet is not known: %s\n", key, err)
		p = event.MoveReply{About: event.About{Generation: anyGeneration}}
	}
	v.from, v.generation = p.From, p.Generation
	under := p.Asked == to && p.Moving == to
	switch {
	case under && p.Stage == state.MoveDone, p.From == to && p.Asked == to && p.Moving == "":
		v.done, v.said = true, fmt.Sprintf("%s: the data are in DataStore %s", key, to)
		return v, nil
	case under:
		v.said = fmt.Sprintf("%s: the data are on the way from DataStore %s to %s (%s)", key, p.From, to, p.Stage)
		return v, nil
	case p.Blocked && !onlyThere(p):
		return v, errors.New(key.String() + ": not moved: " + strings.Join(against(p), "; "))
	}
	accepted, err := setDataStore(ctx, client, key, to, p.About)
	if err != nil {
		return v, err
	}
	if accepted.Paused {
		return v, &follow.StayedError{Tenant: key, DataStore: to, Why: "the tenant is paused; they move when the pause ends"}
	}
	v.generation = accepted.Generation
	v.said = fmt.Sprintf("%s: the data go to DataStore %s (generation %d)", key, to, accepted.Generation)
	return v, nil
}

// onlyThere reports whether nothing but that the data are there already is against a move: of a tenant that asks for another DataStore.
func onlyThere(p event.MoveReply) bool {
	return len(against(p)) == 1 && p.Findings[0].What == reason.AlreadyThere
}

// against are the findings that block a move, in words.
func against(p event.MoveReply) (all []string) {
	for _, f := range p.Findings {
		if f.Blocks {
			all = append(all, f.What+": "+f.Message)
		}
	}
	return all
}

// setDataStore changes spec.dataStore, of the object that was looked at and no other.
func setDataStore(ctx context.Context, client *portal.Client, key events.Key, to string, seen event.About) (portal.Accepted, error) {
	data := event.PatchCommand{Target: event.Target{UID: seen.UID}, Spec: event.Marshal(map[string]any{"dataStore": to})}
	object := manifest.Object{Key: key, Kind: kube.TenantControlPlanes.Kind}
	return send(ctx, client, object, command{verb: event.Patch, data: data, expected: seen.Generation})
}

// await waits until the data have moved, and says so. The error is a *follow.StayedError, or a *timeoutError when ctx ends by its deadline.
func (v *commanded) await(ctx context.Context, timeout time.Duration, out func(follow.Line)) (said string, err error) {
	moved, err := follow.UntilMoved(ctx, v.feed, v.to, v.generation, out)
	if err != nil {
		return "", late(ctx, err, "the data of %s are not in DataStore %s after %s, and go on moving; `stoker why %s -n %s` says how far they are",
			v.key, v.to, timeout, v.key.Name, v.key.Namespace)
	}
	return fmt.Sprintf("%s: the data are in DataStore %s; writes waited for %d ms; what %s holds is kept until %s",
		v.key, moved.To, moved.HeldMilliseconds, moved.From, moved.KeptUntil.UTC().Format(time.RFC3339)), nil
}

// undoMove leaves the data where they are, while that can be.
func (a *app) undoMove(ctx context.Context, bus *events.Bus, client *portal.Client, key events.Key, m migration) error {
	f := following{object: manifest.Object{Key: key, Kind: kube.TenantControlPlanes.Kind}, timeout: m.timeout}
	var err error
	if f.feed, err = follow.Open(ctx, bus, key, follow.Options{}); err != nil {
		return err
	}
	defer f.feed.Close()
	p, err := follow.Move(ctx, bus, key, "")
	switch {
	case err != nil:
		return noTenant(err)
	case p.From == "":
		return fmt.Errorf("%s has no data in any DataStore yet", key)
	case p.Stage == state.MoveDone:
		return fmt.Errorf("the data of %s have moved to DataStore %s: going back is another move, with --to", key, p.From)
	case p.Stage == state.MoveGoingOver:
		return fmt.Errorf("the data of %s go over to DataStore %s at this moment, which can't be undone any more", key, p.Moving)
	case p.Asked == p.From:
		a.sayf(a.out, "%s: the data are in DataStore %s, and nobody asks for another one\n", key, p.From)
		return nil
	}
	if f.accepted, err = setDataStore(ctx, client, key, p.From, p.About); err != nil {
		return err
	}
	a.sayf(a.out, "%s: the data stay in DataStore %s (generation %d)\n", key, p.From, f.accepted.Generation)
	if !m.wait {
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	return untilReady(patience, f, a.printer("").Print)
}
