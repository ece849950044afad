package addons

import (
	"context"
	"errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// handle is a tenant's turn.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
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
func (s *svc) keepUp(ctx context.Context, t *loop.Turn, input Input, certs state.Certs, workload state.Workload, access string) error {
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
