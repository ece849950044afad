// Package addons keeps what must exist inside a tenant: the objects kubeadm would have created, CoreDNS and kube-proxy. It wakes on
// workload.available, on a changed desired state, on rotated certificates and on drift inside a tenant; it tells addons.applied,
// addons.repaired, addons.removed.
//
// [Render] and [Removed] decide; [Cluster.Apply] and [Cluster.Delete] do; [Cluster.Watch] tells when it has to be done again. Beside
// that, it looks inside a tenant for a plan (inside.go).
package addons

import (
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	var s *addons
	err := service.Run(ctx, cfg, func(c *service.Clients) (*loop.Loop, error) {
		s = &addons{clients: c, tenants: map[events.Key]*connection{}}
		if _, err := c.Bus.AnswerQuestions(ctx, s.questions()); err != nil {
			return nil, err
		}
		return &loop.Loop{
			// Nothing is watched during a pause. What drifts meanwhile is told when the watch starts again, from the versions
			// that are in the state.
			Bus: c.Bus, Service: name.ServiceAddons, Handle: s.handle, Paused: func(t *loop.Turn) { s.drop(t.Key) }, Watch: s.watch,
		}, nil
	})
	if s != nil {
		s.keep(nil)
	}
	return err
}

// addons is the service. Its methods are safe for concurrent use; turns of one tenant don't overlap.
type addons struct {
	clients *service.Clients

	mu      sync.Mutex
	wake    loop.Waker
	tenants map[events.Key]*connection
}

// Kinds of wakes.
const (
	// claimed: this replica has the tenant's partition now.
	claimed = "claimed"
	// drifted: an object inside the tenant, named by its Ref, isn't what it should be.
	drifted = "drifted"
	// requested: a kubelet asks for a serving certificate, or has got the addresses that it asked for.
	requested = "requested"
	// counted: the status of the konnectivity agents' workload may be another.
	counted = "counted"
	// rerouted: the tenant is reached by another way than before.
	rerouted = "rerouted"
	// unreached: it is time to look again at an endpoint that didn't answer.
	unreached = "unreached"
	// rewrites: objects that are to be written anew for the encryption are left, or were refused.
	rewrites = "rewrites"
	// counting: it is time to ask whether the tenant was used.
	counting = "counting"
	// webhook: a webhook of the tenant's own kept objects from being applied.
	webhook = "webhook"
)

// watch looks once at the tenants of each partition that is gained, which another replica looked after, and lets go of those of lost ones.
func (s *addons) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	s.mu.Lock()
	s.wake = wake
	s.mu.Unlock()
	for m := range held.Moves(ctx) {
		s.keep(m.Held)
		err := s.clients.Kube.TenantsIn(ctx, m.Gained, func(o *metav1.PartialObjectMetadata) {
			wake(events.Tenant(o.Namespace, o.Name), loop.Wake{Kind: claimed})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// handle is a tenant's turn.
func (s *addons) handle(ctx context.Context, t *loop.Turn) error {
	switch {
	case t.Tenant == nil:
		t.NoAlarm()
		s.drop(t.Key)
		return nil
	case t.Tenant.Deleting:
		t.NoAlarm()
		return s.remove(ctx, t)
	}
	var certs state.Certs
	var workload state.Workload
	certsState, err := t.Read(ctx, name.ServiceCerts, &certs)
	if err != nil {
		return err
	}
	workloadState, err := t.Read(ctx, name.ServiceWorkload, &workload)
	if err != nil {
		return err
	}
	version := versionOf(t.Tenant, t.Generation, workload)
	input := inputOf(t.Tenant, version, certs, workload)
	if own := t.Own(); own == nil || own.Generation != t.Generation || own.Failed() { // else it was looked at
		if err := checkKubelet(input); err != nil {
			return unrendered(err)
		}
	}
	if t.Tenant.Sleeps() {
		t.NoAlarm()
		s.drop(t.Key)
		return t.Wait(ctx, state.Wait{
			On: kube.TenantControlPlanes.Kind, Reason: reason.Asleep, Text: "the tenant to be woken",
		})
	}
	access := certs.Secrets[name.ComponentAdminKubeconfig].Checksum
	tunnel := t.Tenant.Spec.Addons.Konnectivity == nil || workload.KonnectivityEndpoint != ""
	if certsState == nil || access == "" || !tunnel || workloadState == nil || workload.Endpoint == "" || workload.ReadyReplicas == 0 ||
		workload.Version != version {
		return t.Wait(ctx, state.Wait{
			On: name.ServiceWorkload, Reason: reason.ControlPlaneNotReady, Text: "the control plane's pods to be ready (workload.available)",
		})
	}
	return s.keepUp(ctx, t, input, certs, workload, access)
}

// keepUp makes the inside of a tenant whose API is there what it must be, and watches it.
func (s *addons) keepUp(ctx context.Context, t *loop.Turn, input Input, certs state.Certs, workload state.Workload, access string) error {
	_, adopted := t.Tenant.Annotations[name.AnnotationAdopt]
	a := application{input: input, inputs: hashOf(input, access), adopted: adopted}
	if err := t.OwnData(&a.before); err != nil {
		return err
	}
	w, err := s.connect(ctx, t, access, kube.WaysTo(t.Tenant, workload), a.before.Way)
	if err != nil {
		return err
	}
	w.approves(input.KubeletServing)
	s.approve(ctx, t, w)
	a.drift = w.drifted()
	if t.Due() { // all of it may have drifted
		for ref, version := range a.before.Versions {
			if _, seen := a.drift[ref]; !seen {
				a.drift[ref] = version
			}
		}
	}
	own := t.Own()
	a.repair = own != nil && own.Step == event.Applied && own.Inputs == a.inputs &&
		(own.Failure == nil || own.Failure.Reason == reason.RewriteRefused || own.Failure.Reason == reason.KeepsDrifting && !t.Due())
	if !a.repair || t.Due() || looksAt(t.Events, t.Wakes, a.before.Endpoint, workload.Endpoint) {
		a.looked = look(ctx, workload.Endpoint, certs.CA)
	}
	if !a.repair || len(a.drift) > 0 {
		err := s.apply(ctx, t, w, a)
		if err == nil && toRewrite(&certs, &a.before) {
			t.Alarm(0, loop.Wake{Kind: rewrites})
		}
		looksAtUse(t, a.before.Use)
		return barred(ctx, t, err)
	}
	s.follow(t.Key, w, a.before.Versions) //nolint:contextcheck // the watch outlives the turn
	after := a.before
	if t.Woken(counted) || t.Due() {
		if after.Agents, err = w.api().agents(ctx, a.before.Konnectivity); err != nil {
			return s.refused(t.Key, err)
		}
	}
	after.Endpoint, after.Way = a.reach(ctx, t, 2*lookPatience), w.way(a.before)
	facts, err := s.rewritten(ctx, t, w, &certs, &after)
	if no := (*refusal)(nil); errors.As(err, &no) {
		return withheld(ctx, t, no)
	}
	if err != nil {
		return err
	}
	refused := own.Failure != nil && own.Failure.Reason == reason.RewriteRefused && !toRewrite(&certs, &after)
	if own.Generation != t.Generation || own.Waits() || after.Agents != a.before.Agents || a.otherwise(after) || refused || facts != nil {
		facts = append(facts, loop.Tell{What: event.Applied, Data: event.AddonsApplied{About: t.About(), Objects: after.Objects}})
	}
	var idle []loop.Tell
	after.Use, idle = s.used(ctx, t, w, &workload, a.before.Use)
	if facts = append(facts, idle...); facts == nil && after.Use == a.before.Use {
		return nil
	}
	return t.Done(ctx, loop.Outcome{Step: event.Applied, Inputs: a.inputs, Data: after, Facts: facts})
}
