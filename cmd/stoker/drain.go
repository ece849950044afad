package main

// stoker drain: all tenants' data out of a DataStore, in waves. As with a rollout, nothing is kept of it: whose data are where is read from the
// objects, so that one that was stopped goes on when it is asked for again.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// draining is what the command line asks for.
type draining struct {
	from, to, selector string
	atOnce             int
	plan               bool
	timeout            time.Duration
	format             string
}

func drainCommand(a *app) *cobra.Command {
	var d draining
	c := &cobra.Command{
		Use:   "drain DATASTORE --to OTHER [-l SELECTOR] [--plan]",
		Short: "Move all tenants' data out of a DataStore, some at a time",
		Long: `drain moves the data of the tenants that are in a DataStore to another one, in all namespaces or in the one given by -n, so that it can be
taken out of service. It takes some tenants at a time: of each it first asks what the move would meet, then commands it as stoker migrate
does, and waits until the data have moved. After a wave in which something failed it stops and says what; the wave itself is finished.

Where only dataStoreOverrides keep something there, they come to name the other DataStore. Asked for again, it goes on where it stopped: data
that are on the way are waited for. Tenants that are paused or being deleted are left out and named. In the end it says what needs the DataStore still: data that are kept for a while after a move,
tenants that were left out. With --plan it says what each move would meet, and changes nothing.

New tenants may still be given the DataStore: the annotation stoker.dev/max-tenants: "0" keeps them away, and intake's --datastore must not
name it.

Exit codes: 1 a tenant's data were not moved, or something is against it; 3 a wave was not done in time, and goes on.`,
		Example: `  stoker drain etcd-1 --to etcd-2 --plan
  stoker drain etcd-1 --to etcd-2
  stoker drain etcd-1 --to postgres -l tier=free --at-once 4 --timeout 3h`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.from = args[0]
			if err := d.check(); err != nil {
				return err
			}
			return a.drain(cmd.Context(), d)
		},
	}
	f := c.Flags()
	f.StringVar(&d.to, "to", "", "`DataStore` that the data go to")
	f.StringVarP(&d.selector, "selector", "l", "", "only of tenants with these `labels` (tier=free,region!=eu)")
	f.IntVar(&d.atOnce, "at-once", 2, "`number` of tenants whose data move at the same time; a replica of the datastore service moves two from or to a DataStore")
	f.BoolVar(&d.plan, "plan", false, "say what each move would meet, and change nothing")
	f.DurationVar(&d.timeout, "timeout", time.Hour, "how long a wave may take")
	f.StringVarP(&d.format, "output", "o", "", "of the plan: json or yaml for programs")
	return c
}

// check refuses mistakes in the command line.
func (d *draining) check() error {
	for _, n := range []string{d.from, d.to} {
		if n != "" && !events.DataStore(n).Valid() {
			return usagef("%q can't be the name of a DataStore", n)
		}
	}
	_, err := labels.Parse(d.selector)
	switch {
	case d.to == "":
		return usagef("name the DataStore that the data go to, with --to")
	case d.to == d.from:
		return usagef("--to %s: is the DataStore that is to be drained", d.to)
	case err != nil:
		return usagef("-l %q: must be a label selector, such as tier=free", d.selector)
	case d.atOnce < 1:
		return usagef("--at-once %d: must be above 0", d.atOnce)
	case d.format != "" && !d.plan:
		return usagef("-o %s: only for --plan", d.format)
	case d.format != "" && d.format != "json" && d.format != "yaml":
		return usagef("-o %s: must be json or yaml", d.format)
	}
	return nil
}

// inside sorts tenants by what a drain has to do: todo are those whose data are in the DataStore, left those of them, and others that need it,
// which it can do nothing about, and why.
func inside(tenants []v1alpha1.TenantControlPlane, dataStore string) (todo []due, left []string) {
	for i := range tenants {
		o := &tenants[i]
		at, asks := o.Status.Storage.DataStoreName, o.Spec.DataStore
		if asks == "" {
			asks = name.DataStore(o.Labels, o.Annotations)
		}
		overrides := slices.ContainsFunc(o.Spec.DataStoreOverrides, func(x v1alpha1.DataStoreOverride) bool { return x.DataStore == dataStore })
		why := resting(o)
		switch {
		case at != dataStore && at != "" && overrides:
		case at == "" && (overrides || asks == dataStore):
			why = "is to have it, and has no data there yet"
		case at != dataStore && asks == dataStore:
			why = "has its data in DataStore " + at + ", and they are to go there"
		case at != dataStore:
			continue
		}
		if why != "" {
			left = append(left, o.Namespace+"/"+o.Name+" "+why)
			continue
		}
		todo = append(todo, due{tenant: o, asked: at == dataStore && asks != dataStore, overrides: at != dataStore})
	}
	inOrder(todo)
	return todo, left
}

// goal is the DataStore that a tenant's data go to: the one that it asks for already, or that of the command line.
func (d *draining) goal(u due) string {
	if u.asked {
		return u.tenant.Spec.DataStore
	}
	return d.to
}

// drain moves the data of the tenants, wave by wave.
func (a *app) drain(ctx context.Context, d draining) error {
	k, err := a.kube()
	if err != nil {
		return err
	}
	defer k.Close()
	var object v1alpha1.DataStore
	if err := k.Get(ctx, kube.DataStores, "", d.from, &object); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no DataStore %s; `stoker datastores` lists those there are", d.from)
	} else if err != nil {
		return fmt.Errorf("DataStore %s: %w", d.from, err)
	}
	var list v1alpha1.TenantControlPlaneList
	if err := k.List(ctx, kube.TenantControlPlanes, a.namespace, d.selector, &list); err != nil {
		return fmt.Errorf("tenants: %w", err)
	}
	todo, left := inside(list.Items, d.from)
	for _, l := range left {
		a.sayf(a.err, "left out: %s\n", l)
	}
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	if d.plan {
		return a.planDrain(ctx, bus, d, todo)
	}
	if tenants, _, err := name.Limits(object.Annotations); err == nil && (tenants == nil || *tenants > 0) && object.DeletionTimestamp == nil {
		a.sayf(a.err, "new tenants may still be given DataStore %s; kubectl annotate datastore %s %s=0 keeps them away\n", d.from, d.from, name.AnnotationMaxTenants)
	}
	if len(todo) == 0 {
		a.sayf(a.out, "no data are to be moved from DataStore %s\n", d.from)
		return a.sayNeeds(ctx, k, bus, d.from)
	}
	a.sayf(a.out, "tenants whose data move from DataStore %s to %s: %d, %d at a time\n", d.from, d.to, len(todo), min(d.atOnce, len(todo)))
	client, err := portal.New(bus.Conn(), "/stoker/"+events.UserOperator)
	if err != nil {
		return err
	}
	report := &report{app: a}
	done, err := waves(ctx, a, todo, d.atOnce, true, func(wave []due) int { return a.drainWave(ctx, bus, client, d, wave, report) })
	if err != nil {
		return err
	}
	a.sayf(a.out, "moved are the data of %d of %d tenants\n", done, len(todo))
	if err := a.sayNeeds(ctx, k, bus, d.from); err != nil {
		return err
	}
	return reported(report.failed)
}

// drainWave moves the data of the tenants of a wave, and returns how many failed.
func (a *app) drainWave(ctx context.Context, bus *events.Bus, client *portal.Client, d draining, wave []due, report *report) (failed int) {
	patience, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return sideBySide(ctx, wave, report, func(u due) (func() (string, error), error) {
		if u.overrides {
			return a.beginLeaving(patience, bus, client, u.tenant, d)
		}
		v, err := a.beginMove(patience, bus, client, events.Tenant(u.tenant.Namespace, u.tenant.Name), d.goal(u))
		if err != nil {
			return nil, err
		}
		return func() (string, error) {
			defer v.feed.Close()
			if v.done {
				return v.said, nil
			}
			return v.await(patience, d.timeout, nil)
		}, nil
	})
}

// beginLeaving has a tenant's dataStoreOverrides name another DataStore than the one that is drained. What it returns waits until nothing of
// the tenant is there any more, and says so.
func (a *app) beginLeaving(
	ctx context.Context, bus *events.Bus, client *portal.Client, o *v1alpha1.TenantControlPlane, d draining,
) (end func() (string, error), err error) {
	key, overrides := events.Tenant(o.Namespace, o.Name), slices.Clone(o.Spec.DataStoreOverrides)
	for i := range overrides {
		if overrides[i].DataStore == d.from {
			overrides[i].DataStore = d.to
		}
	}
	// What is to go to the tenant's own needs no override, which would keep it there when the rest moves.
	overrides = slices.DeleteFunc(overrides, func(x v1alpha1.DataStoreOverride) bool { return x.DataStore == o.Status.Storage.DataStoreName })
	feed, err := follow.Open(ctx, bus, key, follow.Options{})
	if err != nil {
		return nil, err
	}
	data := event.PatchCommand{Target: event.Target{UID: string(o.UID)}, Spec: event.Marshal(map[string]any{"dataStoreOverrides": overrides})}
	object := manifest.Object{Key: key, Kind: kube.TenantControlPlanes.Kind}
	accepted, err := send(ctx, client, object, command{verb: event.Patch, data: data, expected: o.Generation})
	if err != nil {
		feed.Close()
		return nil, err
	}
	return func() (string, error) {
		defer feed.Close()
		if err := follow.UntilLeft(ctx, feed, d.from, accepted.Generation); err != nil {
			return "", late(ctx, err, "%s has something in DataStore %s after %s, and goes on leaving it; `stoker why %s -n %s` says how far that is",
				key, d.from, d.timeout, key.Name, key.Namespace)
		}
		return fmt.Sprintf("%s: what dataStoreOverrides kept in DataStore %s is in DataStore %s", key, d.from, d.to), nil
	}, nil
}

// planDrain says what each move would meet.
func (a *app) planDrain(ctx context.Context, bus *events.Bus, d draining, todo []due) error {
	plans, blocked := []event.MoveReply{}, false
	for _, u := range todo {
		key := events.Tenant(u.tenant.Namespace, u.tenant.Name)
		if u.overrides {
			a.sayf(a.err, "%s: what its dataStoreOverrides keep there would go, too; of that there is no plan\n", key)
			continue
		}
		p, err := follow.Move(ctx, bus, key, d.goal(u))
		if errors.Is(err, follow.ErrNoTenant) {
			continue // it has gone just now
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		plans = append(plans, p)
		blocked = blocked || p.Blocked && !u.asked
	}
	err := write(a.out, d.format, plans, nil, func(bool) [][]string {
		rows := [][]string{{"NAMESPACE", "NAME", "TO", "KEYS", "BYTES", "COPY", "AGAINST"}}
		for _, p := range plans {
			rows = append(rows, []string{p.Namespace, p.Name, p.To, name.Count(p.Keys), name.Bytes(p.Bytes),
				(time.Duration(p.CopySeconds) * time.Second).String(), dash(strings.Join(against(p), "; "))})
		}
		return rows
	})
	if err == nil && blocked {
		err = errReported
	}
	return err
}

// sayNeeds says what needs a DataStore still, of all tenants of the installation.
func (a *app) sayNeeds(ctx context.Context, k *kube.Client, bus *events.Bus, dataStore string) error {
	var list v1alpha1.TenantControlPlaneList
	if err := k.List(ctx, kube.TenantControlPlanes, "", "", &list); err != nil {
		return fmt.Errorf("tenants: %w", err)
	}
	var kept []string
	for i := range list.Items {
		o := &list.Items[i]
		own, err := stored(ctx, bus, events.Tenant(o.Namespace, o.Name))
		if err != nil {
			return err
		}
		o.Status.Storage.DataStoreName = cmp.Or(own.DataStore, o.Status.Storage.DataStoreName) // which follows a moment later
		there := o.Status.Storage.DataStoreName == dataStore ||
			slices.ContainsFunc(o.Spec.DataStoreOverrides, func(x v1alpha1.DataStoreOverride) bool { return x.DataStore == dataStore })
		for _, k := range own.Kept {
			if k.DataStore == dataStore {
				there = true
				kept = append(kept, fmt.Sprintf("what it held of %s/%s is kept until %s", o.Namespace, o.Name, k.Until.UTC().Format(time.RFC3339)))
			}
		}
		if !there && slices.Contains(name.Overrides(o.Annotations), dataStore) {
			kept = append(kept, fmt.Sprintf("what it holds of %s/%s is on its way, or about to be removed", o.Namespace, o.Name))
		}
	}
	in, needs := inside(list.Items, dataStore)
	if needs = append(needs, kept...); len(in) > 0 {
		needs = append([]string{fmt.Sprintf("tenants with data there: %d", len(in))}, needs...)
	}
	if len(needs) == 0 {
		a.sayf(a.out, "no tenant needs DataStore %s any more; new ones get it where it is the --datastore of intake\n", dataStore)
		return nil
	}
	for _, n := range needs {
		a.sayf(a.out, "needs DataStore %s still: %s\n", dataStore, n)
	}
	return nil
}

// stored is what the datastore service keeps of a tenant, zero for nothing yet.
func stored(ctx context.Context, bus *events.Bus, key events.Key) (own state.Datastore, err error) {
	s, err := bus.State(ctx, key, name.ServiceDatastore)
	if errors.Is(err, events.ErrNotFound) {
		return own, nil
	}
	if err == nil && len(s.Data) > 0 {
		err = json.Unmarshal(s.Data, &own)
	}
	if err != nil {
		err = fmt.Errorf("state of %s: %w", key, err)
	}
	return own, err
}
