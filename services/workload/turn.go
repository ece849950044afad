// A turn of a tenant: its steps in order, and the one write they end in.

package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// turn is one pass for one tenant. The steps fill it; finish writes it.
type turn struct {
	*loop.Turn
	s       *svc
	subject Subject
	spec    *v1alpha1.TenantControlPlaneSpec
	// before is the own data as it was read, data as it is to be.
	before, data state.Workload
	step         string
	facts        []loop.Tell
	// failure is what the rollout suffers from, if that has lasted.
	failure *state.Failure
}

// handle is the service's loop.Handler.
func (s *svc) handle(ctx context.Context, lt *loop.Turn) error {
	if !lt.Key.IsTenant() {
		return nil
	}
	if lt.Tenant == nil {
		lt.NoAlarm()
		s.slots.free(lt.Key)
		s.activator.Close(lt.Key)
		s.observed.forget(lt.Key)
		return nil
	}
	t := &turn{Turn: lt, s: s, subject: Subject{UID: lt.UID, Tenant: lt.Tenant}, spec: &lt.Tenant.Spec}
	if err := t.readOwn(); err != nil {
		return err
	}
	if lt.Tenant.Deleting {
		t.NoAlarm()
		return t.remove(ctx)
	}

	wait, err := t.expose(ctx)
	if err == nil && !wait.Waits() {
		err = t.route(ctx)
	}
	if err == nil && !wait.Waits() {
		err = t.holdConnections(ctx)
	}
	if err == nil && !wait.Waits() {
		if wait, err = t.rollOut(ctx); err == nil {
			err = t.letThrough(ctx)
		}
		if err == nil {
			t.callIfWaiting()
		}
	}
	if err := t.finish(ctx, wait, err); err != nil {
		s.observed.doubt(t.Key)
		return err
	}
	return nil
}

// readOwn takes step and data over from the own state.
func (t *turn) readOwn() error {
	own := t.Own()
	if own == nil {
		return nil
	}
	if err := t.OwnData(&t.before); err != nil {
		return fmt.Errorf("own state: %w", err)
	}
	if t.before.Hashes == (state.ObjectHashes{}) {
		t.before.Hashes = hashesOf(own.Inputs)
	}
	t.data, t.step = t.before, own.Step
	return nil
}

// hashesOf reads the Inputs of a state written before 2026-12, which are the hashes of Service, Ingress, Deployment and
// TLSRoute with slashes between them.
// 2026-11: to be removed once no installation has such states.
func hashesOf(inputs string) state.ObjectHashes {
	parts := append(strings.Split(inputs, "/"), "") // before there were routes, there were three
	if len(parts) < 4 {
		return state.ObjectHashes{}
	}
	return state.ObjectHashes{Service: parts[0], Ingress: parts[1], Deployment: parts[2], Route: parts[3]}
}

// finish writes what the turn has come to, unless nothing has changed but versions of objects. After an error it writes only
// if facts are due that others wait for, and then returns the error.
func (t *turn) finish(ctx context.Context, wait state.Wait, err error) error {
	if no := (*denied)(nil); errors.As(err, &no) {
		wait = no.wait()
		t.failure, err = &state.Failure{Reason: no.reason, Message: no.message}, nil
		if t.step = event.Exposed; t.data.Endpoint == "" {
			t.step = ""
			t.provisioning()
		}
		t.Alarm(t.s.retryDenied, loop.Wake{Kind: wakeDenied})
	}
	if err != nil {
		if len(t.facts) == 0 {
			return err
		}
		t.step = event.Exposed
	}
	if err == nil && len(t.facts) == 0 && t.reachedOtherwise() {
		t.facts = t.exposed()
	}
	if u := t.data.Upgrade; u.Undone(t.Generation) && err == nil {
		t.failure = undoneBecause(u, t.failure)
	}
	if t.failure == nil {
		t.failure = t.Drifting()
	}
	if o := t.Own(); o != nil && len(t.facts) == 0 && o.Generation == t.Generation && o.Step == t.step && o.Wait == wait &&
		sameFailure(o.Failure, t.failure) && sameButVersions(t.before, t.data) {
		return nil
	}
	return errors.Join(t.Done(ctx, loop.Outcome{
		Step: t.step, Wait: wait, Data: t.data, Facts: t.facts, Failure: t.failure,
	}), err)
}

// exposed is the fact that says how the tenant is reached.
func (t *turn) exposed() []loop.Tell {
	return []loop.Tell{{What: event.Exposed, Data: event.WorkloadExposed{About: t.About(), Endpoint: t.data.Endpoint}}}
}

// reachedOtherwise reports whether others now say something else of what leads to a tenant that is done: then no other fact has the
// status looked at.
func (t *turn) reachedOtherwise() bool {
	said := func(w state.Workload) string {
		return hash([]any{w.Service, w.Ingress, w.Gateway, w.KonnectivityGateway})
	}
	return (t.step == event.Available || t.step == event.Slept) && said(t.before) != said(t.data)
}

// sameFailure reports whether a failure is the one that the own state has already.
func sameFailure(noted, f *state.Failure) bool {
	if noted == nil || f == nil {
		return noted == f
	}
	return noted.Reason == f.Reason && noted.Message == f.Message && noted.Permanent == f.Permanent
}

// sameButVersions reports whether data differs in nothing but resourceVersions, which isn't worth a write: they change each
// time the Deployment's controller writes its status.
func sameButVersions(a, b state.Workload) bool {
	b.ServiceVersion, b.DeploymentVersion = a.ServiceVersion, a.DeploymentVersion
	b.KubeadmConfig.ResourceVersion = a.KubeadmConfig.ResourceVersion
	return hash(a) == hash(b)
}

// provisioning sets the phase of a tenant that has none yet.
func (t *turn) provisioning() {
	if t.data.Phase == "" {
		t.data.Phase = string(v1alpha1.VersionProvisioning)
	}
}
