package main

// stoker adopt: tenants that Kamaji made become Stoker's, in waves. Nothing is kept of it: which tenants are still to be done is read from
// their objects, so that one that was stopped goes on when it is asked for again.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/adoption"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// adopting is what the command line asks for.
type adopting struct {
	selector, wave, format string
	all, plan              bool
	timeout                time.Duration
}

func adoptCommand(a *app) *cobra.Command {
	var r adopting
	c := &cobra.Command{
		Use:   "adopt (NAME | -A | -l SELECTOR) [--plan]",
		Short: "Take over tenants that Kamaji made, in waves",
		Long: `adopt has Stoker work on tenants that Kamaji made, which it leaves alone until then. Their certificates, keys, kubeconfigs, data and endpoint
stay, and so do their pods, unless the plan says otherwise. With --plan it says what becomes of each, and changes nothing.

It takes some of them at a time, and waits until each is Ready, or asleep; one that is being deleted, until it is gone. After a wave in which
something failed it stops. Asked for again, it goes on where it stopped. A tenant that is paused is taken over when it is resumed.

Kamaji's controller must be stopped before, and its webhooks deleted: adopt refuses while they are there.

Exit codes: 1 a tenant failed; 3 a tenant was not Ready in time; 4 something is against it.`,
		Example: `  stoker adopt --plan -A
  stoker adopt demo
  stoker adopt -l tier=free --wave 5`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(a, args); err != nil {
				return err
			}
			return a.adopt(cmd.Context(), r, args)
		},
	}
	f := c.Flags()
	f.StringVarP(&r.selector, "selector", "l", "", "label `selector` of the tenants")
	f.BoolVarP(&r.all, "all-namespaces", "A", false, "all tenants of all namespaces")
	f.BoolVar(&r.plan, "plan", false, "say what becomes of each tenant, and change nothing")
	f.StringVar(&r.wave, "wave", "10%", "how many tenants at a time: a `number`, or a share of all that are selected; one at least")
	f.DurationVar(&r.timeout, "timeout", 15*time.Minute, "how long a wave may take")
	f.StringVarP(&r.format, "output", "o", "", "of the plan: table, wide, json, yaml or name")
	return c
}

// check refuses mistakes in the command line.
func (r *adopting) check(a *app, args []string) error {
	if err := checkOutput(r.format); err != nil {
		return err
	}
	if r.format != "" && !r.plan {
		return usagef("-o %s: only for --plan", r.format)
	}
	if len(args) == 1 && (r.all || r.selector != "") || r.all && a.namespace != "" || len(args) == 0 && !r.all && r.selector == "" && a.namespace == "" {
		return usagef("name a tenant, or select some by -n NAMESPACE, -l SELECTOR or -A")
	}
	if _, err := labels.Parse(r.selector); err != nil {
		return usagef("-l %q: must be a label selector, such as tier=free", r.selector)
	}
	if _, err := waveSize(r.wave, 1); err != nil {
		return usagef("--wave %s: must be a number above 0, or a share such as 10%%", r.wave)
	}
	return nil
}

// adopt plans, or takes over, what the command line selects.
func (a *app) adopt(ctx context.Context, r adopting, args []string) error {
	k, err := a.kube()
	if err != nil {
		return err
	}
	defer k.Close()
	selected, err := a.selected(ctx, k, r, args)
	if err != nil {
		return err
	}
	todo := slices.DeleteFunc(selected, func(o v1alpha1.TenantControlPlane) bool { return !unfinished(&o) })
	plans := make([]adoption.Plan, 0, len(todo))
	for i := range todo {
		seen, err := adoption.Look(ctx, k, &todo[i])
		if err != nil {
			return err
		}
		plans = append(plans, adoption.Of(seen, time.Now()))
	}
	inTheWay, err := adoption.Working(ctx, k, time.Now())
	if err != nil {
		return fmt.Errorf("looking for Kamaji: %w", err)
	}
	for _, w := range inTheWay {
		a.sayf(a.err, "in the way: %s\n", w)
	}
	if r.plan {
		if err := showAdoption(a, plans, r.format); err != nil {
			return err
		}
	}
	against := len(inTheWay) > 0
	for _, p := range plans {
		for _, text := range p.Against {
			a.sayf(a.err, "against %s/%s: %s\n", p.Namespace, p.Name, text)
			against = true
		}
	}
	switch {
	case against:
		return errBlocked
	case r.plan:
		return nil
	}
	return a.adoptAll(ctx, k, r, todo, plans)
}

// selected are the tenants that the command line names.
func (a *app) selected(ctx context.Context, k *kube.Client, r adopting, args []string) ([]v1alpha1.TenantControlPlane, error) {
	if len(args) == 1 {
		key, err := a.tenant(args[0])
		if err != nil {
			return nil, err
		}
		return one(ctx, k, key)
	}
	var list v1alpha1.TenantControlPlaneList
	if err := k.List(ctx, kube.TenantControlPlanes, a.namespace, r.selector, &list); err != nil {
		return nil, fmt.Errorf("tenants: %w", err)
	}
	return list.Items, nil
}

// unfinished reports whether a tenant is still to be taken over: Kamaji made it, and either nobody has asked for it, or it isn't Ready yet.
func unfinished(o *v1alpha1.TenantControlPlane) bool {
	_, asked := o.Annotations[name.AnnotationAdopt]
	return v1alpha1.MadeByKamaji(o) || asked && !runs(o, o.Status.Kubernetes.Version.Version)
}

// showAdoption writes plans for a person, or for programs.
func showAdoption(a *app, plans []adoption.Plan, format string) error {
	names := make([]string, 0, len(plans))
	for _, p := range plans {
		names = append(names, "tenantcontrolplane/"+p.Name)
	}
	return write(a.out, format, plans, names, func(wide bool) [][]string {
		head := []string{"NAMESPACE", "NAME", "VERSION", "DATASTORE", "ENDPOINT", "PODS", "SECRETS KEPT", "WHY"}
		if wide {
			head = append(head, "MAKES", "CHANGES", "LEAVES")
		}
		rows := [][]string{head}
		for _, p := range plans {
			pods := p.Pods
			if p.Paused {
				pods += ", once resumed"
			}
			row := []string{
				p.Namespace, p.Name, p.Version, dash(p.DataStore), dash(p.Endpoint), pods, fmt.Sprint(len(p.Keeps)), dash(strings.Join(p.Why, "; ")),
			}
			if wide {
				row = append(row, dash(strings.Join(p.Makes, "; ")), strings.Join(p.Changes, "; "), strings.Join(p.Leaves, "; "))
			}
			rows = append(rows, row)
		}
		return rows
	})
}

// adoptAll takes tenants over, wave by wave.
func (a *app) adoptAll(ctx context.Context, k *kube.Client, r adopting, todo []v1alpha1.TenantControlPlane, plans []adoption.Plan) error {
	size, err := waveSize(r.wave, len(todo))
	if err != nil {
		return err
	}
	a.sayf(a.out, "%d tenants to adopt, %d at a time\n", len(todo), min(size, len(todo)))
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
	report, all := &report{app: a}, make([]adoptee, 0, len(todo))
	for i := range todo {
		all = append(all, adoptee{&todo[i], plans[i].Paused})
	}
	done, err := waves(ctx, a, all, size, true, func(wave []adoptee) int { return a.adoptWave(ctx, k, client, r, wave, report) })
	if err != nil {
		return err
	}
	a.sayf(a.out, "%d tenants adopted\n", done)
	return reported(report.failed)
}

// adoptee is a tenant that is to be taken over; paused is true when nothing more is done for it now.
type adoptee struct {
	tenant *v1alpha1.TenantControlPlane
	paused bool
}

// adoptWave takes the tenants of a wave over side by side, and returns how many failed.
func (a *app) adoptWave(ctx context.Context, k *kube.Client, client *portal.Client, r adopting, wave []adoptee, report *report) (failed int) {
	patience, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var mu sync.Mutex
	var waits sync.WaitGroup
	for _, of := range wave {
		waits.Go(func() {
			said, err := a.adoptOne(patience, k, client, r, of)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				a.sayf(a.out, "%s\n", said)
			} else if ctx.Err() == nil {
				failed++
				report.add(err)
			}
		})
	}
	waits.Wait()
	return failed
}

// adoptOne has a tenant taken over and waits until it is Ready, or gone when it is being deleted; unless it is paused.
func (a *app) adoptOne(ctx context.Context, k *kube.Client, client *portal.Client, r adopting, of adoptee) (said string, err error) {
	o := of.tenant
	key := events.Tenant(o.Namespace, o.Name)
	patch := map[string]any{"metadata": map[string]any{"uid": o.UID, "annotations": map[string]string{name.AnnotationAdopt: ""}}}
	if err := k.MergePatch(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, patch, nil); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	if of.paused {
		return key.String() + " is paused: it is taken over when it is resumed", nil
	}
	about := event.About{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Generation: o.Generation}
	accepted, wait, is := portal.Accepted{IntakeAccepted: event.IntakeAccepted{About: about}, What: event.Accepted}, client.WaitReady, "Ready"
	if o.DeletionTimestamp != nil {
		wait, is = client.WaitDeleted, "gone"
	}
	s, err := wait(ctx, accepted)
	if err != nil {
		return "", late(ctx, fmt.Errorf("%s: %w", key, err), "%s is not %s after %s; `stoker why %s -n %s` says what it waits for",
			key, is, r.timeout, key.Name, key.Namespace)
	}
	return key.String() + " adopted: " + s.Phase, nil
}
