package main

// stoker rollout: another version of Kubernetes for many tenants, in waves. Nothing is kept of a rollout: which tenants are still to be
// done is read from their objects, so that one that was stopped goes on when it is asked for again.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// rollout is what the command line asks for.
type rollout struct {
	selector, version, wave string
	pause                   bool
	timeout                 time.Duration
}

func rolloutCommand(a *app) *cobra.Command {
	var r rollout
	c := &cobra.Command{
		Use:   "rollout -l SELECTOR --version VERSION",
		Short: "Bring many tenants to another version, in waves",
		Long: `rollout brings the tenants that a label selector matches, in all namespaces or in the one given by -n, to another version of Kubernetes.
It takes some of them at a time: of each it first asks for the plan (see stoker plan), then commands the change, and then waits until the
tenant is Ready, or asleep. After a wave in which something failed it stops and says what; the wave itself is finished.

Asked for again, it goes on where it stopped: tenants that have the version are done, those that don't come up yet are waited for.
Tenants that are paused or being deleted are left out. A rollout goes one minor version up at most, as every upgrade, or several for tenants whose annotation
stoker.dev/upgrade-through names those between. It stops at a tenant whose upgrade was undone, which has failed.

Exit codes: 1 a tenant failed, or something is against its upgrade; 3 a tenant was not Ready in time.`,
		Example: `  stoker rollout -l tier=free --version v1.36.3
  stoker rollout -l env=staging --version v1.36.3 --wave 3 --timeout 20m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.check(); err != nil {
				return err
			}
			return a.rollOut(cmd.Context(), r)
		},
	}
	f := c.Flags()
	f.StringVarP(&r.selector, "selector", "l", "", "label `selector` of the tenants (tier=free,region!=eu)")
	f.StringVar(&r.version, "version", "", "`version` of Kubernetes")
	f.StringVar(&r.wave, "wave", "10%", "how many tenants at a time: a `number`, or a share of all that are selected; one at least")
	f.BoolVar(&r.pause, "pause-on-failure", true, "stop after a wave in which something failed; false goes on with the others")
	f.DurationVar(&r.timeout, "timeout", 15*time.Minute, "how long a wave may take")
	return c
}

// check refuses mistakes in the command line. A version without its v gets it.
func (r *rollout) check() error {
	if _, err := labels.Parse(r.selector); err != nil || r.selector == "" {
		return usagef("-l %q: must be a label selector, such as tier=free", r.selector)
	}
	if _, ok := v1alpha1.Minor(r.version); !ok {
		return usagef("--version %q: must be a version of Kubernetes, such as v1.36.3", r.version)
	}
	r.version = "v" + strings.TrimPrefix(r.version, "v")
	if _, err := waveSize(r.wave, 1); err != nil {
		return usagef("--wave %s: must be a number above 0, or a share such as 10%%", r.wave)
	}
	return nil
}

// waveSize is how many of so many tenants are one wave.
func waveSize(wave string, all int) (int, error) {
	of := intstr.Parse(wave)
	n, err := intstr.GetScaledValueFromIntOrPercent(&of, all, true)
	if err != nil || of.Type == intstr.String && strings.HasPrefix(wave, "-") || of.Type == intstr.Int && n < 1 {
		return 0, fmt.Errorf("wave %s: %w", wave, errors.Join(err, errors.New("must be above 0")))
	}
	return max(n, 1), nil
}

// due is a tenant for which something is to be done. asked is true when it was commanded already.
type due struct {
	tenant *v1alpha1.TenantControlPlane
	asked  bool
	// overrides says that what its dataStoreOverrides keep in the DataStore that is drained is to go, and its other data are elsewhere.
	overrides bool
}

// remaining sorts tenants by what is left to do: those that were commanded before and aren't there come first. left says which are left
// out, and why.
func remaining(tenants []v1alpha1.TenantControlPlane, version string) (todo []due, done int, left []string) {
	for i := range tenants {
		o := &tenants[i]
		asked := "v"+strings.TrimPrefix(o.Spec.Kubernetes.Version, "v") == version
		why := resting(o)
		switch {
		case o.DeletionTimestamp == nil && asked && runs(o, version):
			done++
		case why != "":
			left = append(left, o.Namespace+"/"+o.Name+" "+why)
		default:
			todo = append(todo, due{tenant: o, asked: asked})
		}
	}
	inOrder(todo)
	return todo, done, left
}

// resting says why nothing can be done for a tenant now, empty when something can.
func resting(o *v1alpha1.TenantControlPlane) string {
	switch {
	case o.DeletionTimestamp != nil:
		return "is being deleted"
	case meta.IsStatusConditionTrue(o.Status.Conditions, "Paused"):
		return "is paused"
	}
	return ""
}

// inOrder sorts tenants by name, and those that were commanded before first.
func inOrder(todo []due) {
	slices.SortStableFunc(todo, func(a, b due) int {
		if a.asked != b.asked {
			return map[bool]int{true: -1, false: 1}[a.asked]
		}
		return strings.Compare(a.tenant.Namespace+"/"+a.tenant.Name, b.tenant.Namespace+"/"+b.tenant.Name)
	})
}

// runs reports whether a tenant has come to a version: it is Ready with it, or sleeps and has it.
func runs(o *v1alpha1.TenantControlPlane, version string) bool {
	v := o.Status.Kubernetes.Version
	ready := meta.FindStatusCondition(o.Status.Conditions, "Ready")
	current := ready != nil && ready.ObservedGeneration == o.Generation
	asleep := v.Status != nil && *v.Status == v1alpha1.VersionSleeping
	return v.Version == version && current && (ready.Status == metav1.ConditionTrue || asleep)
}

// rollOut brings the tenants to the version, wave by wave.
func (a *app) rollOut(ctx context.Context, r rollout) error {
	k, err := a.kube()
	if err != nil {
		return err
	}
	defer k.Close()
	var list v1alpha1.TenantControlPlaneList
	if err := k.List(ctx, kube.TenantControlPlanes, a.namespace, r.selector, &list); err != nil {
		return fmt.Errorf("tenants: %w", err)
	}
	size, err := waveSize(r.wave, len(list.Items))
	if err != nil {
		return err
	}
	todo, done, left := remaining(list.Items, r.version)
	for _, l := range left {
		a.sayf(a.err, "left out: %s\n", l)
	}
	a.sayf(a.out, "%d of %d tenants to %s, %d at a time; %d have it\n", len(todo), len(list.Items), r.version, min(size, len(todo)), done)
	if len(todo) == 0 {
		return nil
	}
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	client, err := portal.New(bus.Conn(), "/stoker/"+events.UserOperator)
	if err != nil {
		return err
	}
	report := &report{app: a}
	more, err := waves(ctx, a, todo, size, r.pause, func(wave []due) int { return a.rollOutWave(ctx, bus, client, r, wave, report) })
	if err != nil {
		return err
	}
	a.sayf(a.out, "%d of %d tenants have %s\n", done+more, len(list.Items), r.version)
	return reported(report.failed)
}

// waves works on tenants, so many at a time, and stops after a wave in which something failed if it is to pause then. work returns how many
// failed, waves how many are done; its error is that of ctx.
func waves[T any](ctx context.Context, a *app, todo []T, size int, pause bool, work func(wave []T) (failed int)) (done int, err error) {
	for wave := range slices.Chunk(todo, size) {
		failed := work(wave)
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		done += len(wave) - failed
		todo = todo[len(wave):]
		if failed > 0 && pause && len(todo) > 0 {
			a.sayf(a.err, "stopped: %d tenants are left; put right what failed and ask again, or leave those out by the selector\n", len(todo))
			break
		}
	}
	return done, nil
}

// rollOutWave brings the tenants of a wave to the version, and returns how many failed.
func (a *app) rollOutWave(ctx context.Context, bus *events.Bus, client *portal.Client, r rollout, wave []due, report *report) (failed int) {
	patience, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return sideBySide(ctx, wave, report, func(u due) (func() (string, error), error) {
		key := events.Tenant(u.tenant.Namespace, u.tenant.Name)
		accepted, err := a.upgrade(patience, bus, client, r.version, u)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		return func() (string, error) {
			s, err := client.WaitReady(patience, accepted)
			if err != nil {
				err = late(patience, fmt.Errorf("%s: %w", key, err), "%s is not Ready with %s after %s; `stoker why %s -n %s` says what it waits for",
					key, r.version, r.timeout, key.Name, key.Namespace)
			}
			return fmt.Sprintf("%s %s %s", key, r.version, s.Phase), err
		}, nil
	})
}

// sideBySide works on the tenants of a wave, and returns how many failed. begin is called for one after the other; what it returns waits for
// one, beside the others, and says what has become of it.
func sideBySide[T any](ctx context.Context, wave []T, report *report, begin func(T) (wait func() (say string, err error), err error)) (failed int) {
	var mu sync.Mutex
	note := func(say string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			report.app.sayf(report.app.out, "%s\n", say)
		} else if ctx.Err() == nil {
			failed++
			report.add(err)
		}
	}
	var waits sync.WaitGroup
	for _, one := range wave {
		wait, err := begin(one)
		if err != nil {
			note("", err)
			continue
		}
		waits.Go(func() { note(wait()) })
	}
	waits.Wait()
	return failed
}

// upgrade commands the change of a tenant, unless something is against it, or it was commanded before.
func (a *app) upgrade(ctx context.Context, bus *events.Bus, client *portal.Client, version string, u due) (portal.Accepted, error) {
	o := u.tenant
	if u.asked {
		about := event.About{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Generation: o.Generation}
		return portal.Accepted{IntakeAccepted: event.IntakeAccepted{About: about}}, nil
	}
	key := events.Tenant(o.Namespace, o.Name)
	spec := event.Marshal(map[string]any{"kubernetes": map[string]any{"version": version}})
	plan, err := follow.Plan(ctx, bus, key, event.PlanQuery{Spec: spec})
	if err != nil {
		return portal.Accepted{}, err
	}
	if plan.Blocked {
		var against []string
		for _, c := range plan.Checks {
			if c.Verdict == event.VerdictBlocks {
				against = append(against, c.Reason+": "+c.Message)
			}
		}
		return portal.Accepted{}, errors.New("not upgraded: " + strings.Join(against, "; "))
	}
	// Of the object that the plan was made for, and no other.
	data := event.PatchCommand{Target: event.Target{UID: plan.UID}, Spec: spec}
	return send(ctx, client, manifest.Object{Key: key, Kind: kube.TenantControlPlanes.Kind}, command{verb: event.Patch, data: data, expected: plan.Generation})
}
