// Package certs makes every Secret of keys, certificates and kubeconfigs of a tenant, keeps them valid and puts back what
// somebody deletes or edits.
//
// It wakes on intake.accepted (what needs no endpoint is issued at once), workload.exposed (the API server's certificate
// and the administrators' kubeconfigs follow), certs.due (renewal, and a look at everything once a week), changes of its
// Secrets and of KubeconfigGenerators, intake.deleting and datastore.removed. It tells certs.issued once everything exists
// for a generation, certs.rotated when something of that generation was replaced later, certs.removed; certs.generated
// about each kubeconfig of a KubeconfigGenerator, which wakes it to write that one's status.
//
// Files: wants.go says what must exist, policy.go whether what is there may stay, issue.go makes it anew, apply.go brings
// it to the management cluster, remove.go takes it away. For KubeconfigGenerators, asks.go says what they ask for,
// generators.go knows them, generated.go makes it so for a tenant, generator.go writes their status.
package certs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// lookAfter is how long a tenant goes without a look at its Secrets. Timers live in a stream that keeps messages for 30
// days, so a renewal months ahead is reached in steps; each step also finds what was deleted while no replica watched.
const lookAfter = 7 * 24 * time.Hour

// soonest keeps a timer from firing again and again should a renewal not move its own date.
const soonest = 10 * time.Minute

type svc struct {
	bus        *events.Bus
	kube       *kube.Client
	log        *slog.Logger
	now        func() time.Time
	generators *generators
}

func newService(bus *events.Bus, k *kube.Client, log *slog.Logger) *svc {
	return &svc{bus: bus, kube: k, log: log, now: time.Now, generators: newGenerators(k, log, time.Now)}
}

// Run works until ctx ends. It returns early only with an error that no waiting helps. Safe to run several times in a
// process.
func Run(ctx context.Context, cfg service.Config) error {
	return service.Run(ctx, cfg, func(c *service.Clients) (*loop.Loop, error) {
		s := newService(c.Bus, c.Kube, c.Log)
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceCerts, Handle: s.handle, Watch: s.watch}, nil
	})
}

// handle is the one loop, for tenants and for KubeconfigGenerators.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
	if t.Key.Kind == event.KubeconfigGenerators {
		return s.generator(ctx, t)
	}
	if t.Tenant == nil {
		return nil
	}
	if t.Tenant.Deleting {
		return s.remove(ctx, t)
	}
	var own state.Certs
	if err := t.OwnData(&own); err != nil {
		return fmt.Errorf("own state: %w", err)
	}
	own.IssuedFor = state.IssuedFor(t.Own(), &own)
	seen := drifted(t.Wakes, &own)
	if len(t.Events) == 0 && !seen && !t.Woken(wakeKubeconfig) && t.Attempt() == 0 && t.Own() != nil {
		return nil // echoes of what we wrote
	}
	a, err := s.generators.asks(s.definition(ctx, t))
	if err != nil {
		return err
	}

	var w state.Workload
	if _, err := t.Read(ctx, name.ServiceWorkload, &w); err != nil {
		return err
	}
	in, now := inputOf(t.UID, t.Tenant, &w), s.now()
	look := seen || told(t, event.Due) || !a.settled(own.Generated, in.Exposed != nil)
	if in.Exposed == nil && t.Own() != nil && t.Own().Step == event.Issued && !look {
		return t.Wait(ctx, waitEndpoint()) // the endpoint went and will come back; what needs it stays as it is
	}
	inputs := in.hash() + "-" + strconv.FormatInt(t.Generation, 10)
	if o := t.Own(); o != nil && o.Inputs == inputs && o.Failure == nil && o.Wait == waiting(in) && !look {
		return nil
	}

	r, err := s.ensure(ctx, in, &own, now)
	if err != nil {
		return err
	}
	if err := s.generate(ctx, t, in, a, own.Generated, r, now); err != nil {
		return err
	}
	return s.done(ctx, t, in, inputs, &own, r, now)
}

// waitEndpoint is what the second stage waits for.
func waitEndpoint() state.Wait {
	return state.Wait{On: name.ServiceWorkload, Reason: reason.EndpointUnknown, Text: "the endpoint"}
}

func waiting(in input) state.Wait {
	if in.Exposed == nil {
		return waitEndpoint()
	}
	return state.Wait{}
}

// done writes what has come of a turn, and tells it when everything exists.
func (s *svc) done(ctx context.Context, t *loop.Turn, in input, inputs string, own *state.Certs, r *result, now time.Time) error {
	step, issuedBefore := "", t.Own() != nil && t.Own().Step == event.Issued
	switch {
	case in.Exposed != nil:
		step, r.data.IssuedFor = event.Issued, t.Generation
	case issuedBefore:
		// What needs the endpoint is there from before; it can't be judged now, so it isn't forgotten, and the inputs
		// stay those it was issued from.
		step, inputs, r.data.IssuedFor = event.Issued, t.Own().Inputs, own.IssuedFor
		for component, secret := range own.Secrets {
			if _, ok := r.data.Secrets[component]; !ok {
				r.data.Secrets[component] = secret
			}
		}
	}
	if r.newCA {
		s.log.Warn("tenant has a new certificate authority: its nodes have to join again, kubeconfigs handed out are void",
			"tenant", t.Key.String(), "generation", t.Generation, "step", step, "reason", r.reasons[name.ComponentCA])
	}
	for component, reason := range r.reasons {
		s.log.Debug("secret written", "tenant", t.Key.String(), "generation", t.Generation, "step", step,
			"component", component, "reason", reason)
	}

	// The timer first: a crash after it repeats the turn, a crash before it would leave none.
	next := now.Add(lookAfter)
	if at := r.data.RenewAt; !at.IsZero() && at.Before(next) {
		next = at
	}
	if next.Before(now.Add(soonest)) {
		next = now.Add(soonest)
	}
	if err := s.timer(ctx, t, own, r, next); err != nil {
		return err
	}

	o := loop.Outcome{Step: step, Inputs: inputs, Wait: waiting(in), Data: r.data}
	if step == event.Issued {
		if what := announce(own, &r.data); what != "" {
			o.Facts = []loop.Tell{{What: what, Data: fact(t.About(), r)}}
		}
	}
	return t.Done(ctx, o)
}

// timer sets the next look. A turn that only confirms what is known leaves the timer that runs.
func (s *svc) timer(ctx context.Context, t *loop.Turn, own *state.Certs, r *result, next time.Time) error {
	if t.Own() != nil && !told(t, event.Due) && own.RenewAt.Equal(r.data.RenewAt) {
		return nil
	}
	return t.At(ctx, next)
}

// announce says which fact is owed: issued for a generation that had none, rotated when content of one that had changed,
// none when nothing did.
func announce(before, after *state.Certs) string {
	if before.IssuedFor != after.IssuedFor {
		return event.Issued
	}
	for component, secret := range after.Secrets {
		if before.Secrets[component].Checksum != secret.Checksum {
			return event.Rotated
		}
	}
	return ""
}

// fact is the payload of issued and rotated.
func fact(about event.About, r *result) event.CertsIssued {
	f := event.CertsIssued{About: about, Checksums: map[string]string{}, Reasons: r.reasons}
	for component, secret := range r.data.Secrets {
		f.Checksums[component] = secret.Checksum
		f.NotAfter = earliest(f.NotAfter, secret.NotAfter)
	}
	return f
}

// told reports whether one of the turn's events is this fact of certs'.
func told(t *loop.Turn, what string) bool {
	for _, e := range t.Events {
		if e.Service == name.ServiceCerts && e.What == what {
			return true
		}
	}
	return false
}

// watch runs the watches of Secrets and of KubeconfigGenerators.
func (s *svc) watch(ctx context.Context, partitions []int, wake loop.Waker) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.watchSecrets(ctx, partitions, wake) })
	g.Go(func() error { return s.generators.watch(ctx, partitions, wake) })
	return g.Wait()
}

// watchSecrets wakes tenants whose Secrets of ours changed, or went while nobody watched. It keeps nothing of them: what was
// seen goes into the reason, and the turn compares it with the resourceVersion in its state.
func (s *svc) watchSecrets(ctx context.Context, partitions []int, wake loop.Waker) error {
	there := map[events.Key][]string{} // components by tenant, until the first list is complete
	changed := func(c kube.Change) {
		tenant := tenantOf(c.Object)
		component := componentOf(tenant, c.Object.Name)
		if component == "" {
			return
		}
		key := events.Tenant(c.Object.Namespace, tenant)
		if there != nil {
			there[key] = append(there[key], component)
		}
		wake(key, wakeOf(component, c.Object.ResourceVersion, c.Type == watch.Deleted))
	}
	listed := func() {
		for key, have := range there {
			for component := range components(key.Name) {
				if !slices.Contains(have, component) {
					wake(key, wakeOf(component, "", true))
				}
			}
		}
		there = nil
	}
	return s.kube.WatchListed(ctx, kube.Secrets, "", kube.InPartitions(partitions), changed, listed)
}

// tenantOf returns the tenant a Secret belongs to: its owner's name, which is harder to edit than the label.
func tenantOf(o *metav1.PartialObjectMetadata) string {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == kube.TenantControlPlanes.Kind {
		return owner.Name
	}
	return o.Labels[name.LabelName]
}

// componentOf returns the component whose Secret has the name, empty when none of ours has.
func componentOf(tenant, secret string) string {
	if tenant == "" {
		return ""
	}
	for component, n := range components(tenant) {
		if n == secret {
			return component
		}
	}
	if generator := generatorIn(tenant, secret); generator != "" {
		return generatedComponent(generator)
	}
	return ""
}

// wakeSecret is the kind of wake of a tenant's own Secret; its Object is the component.
const wakeSecret = "Secret"

// wakeOf is the wake for what a watch saw of a component's Secret.
func wakeOf(component, version string, gone bool) loop.Wake {
	if generator, ok := strings.CutPrefix(component, componentPrefix); ok {
		return loop.Wake{Kind: wakeKubeconfig, Object: generator, Version: version, Gone: gone}
	}
	return loop.Wake{Kind: wakeSecret, Object: component, Version: version, Gone: gone}
}

// drifted reports whether watches saw a Secret that isn't as the state has it. A version older than the recorded one is
// an echo as well: resource versions of one kind can be compared (Kubernetes 1.35), and one that is no number counts as
// news unless it is equal.
func drifted(wakes []loop.Wake, own *state.Certs) bool {
	for _, w := range wakes {
		have, known := own.Secrets[w.Object]
		switch w.Kind {
		case wakeSecret:
		case wakeKubeconfig:
			g, there := own.Generated[w.Object]
			if !there {
				continue // what generators ask for tells whether it is to be made, or to go
			}
			have, known = g.Secret, true
		default:
			return true
		}
		switch {
		case !known:
			if len(own.Secrets) > 0 && needsEndpoint(w.Object) {
				continue // not issued yet, or from before the state was lost; judged once the endpoint is known
			}
			return true
		case w.Version == have.ResourceVersion && !w.Gone:
		case older(w.Version, have.ResourceVersion):
		default:
			return true
		}
	}
	return false
}

// needsEndpoint reports whether a component is issued in the second stage.
func needsEndpoint(component string) bool {
	return component == name.ComponentAPIServerCertificate || component == name.ComponentAdminKubeconfig
}

func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}
