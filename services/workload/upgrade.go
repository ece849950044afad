// Upgrades: which version of Kubernetes a tenant's pods are to run now. It is the spec's, but for two cases: where the spec asks for one that
// is several minor versions away, pods run each of those between first; and where pods of a version haven't become ready in time, the
// version that all of them ran before comes back. What is decided is pure; it is written to the own state before it is carried out, so that
// whoever goes on after a crash decides alike.

package workload

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// upgradeOf is the upgrade of a tenant whose spec asks for a version in this generation; nil when there is none. before is what was known,
// listed are the versions that the tenant names for the way. One that was undone is tried again in the next generation. Versions that were
// asked for and not reached, as while the tenant slept, are on the way to the one that is asked for now.
func upgradeOf(before *state.Workload, asked string, listed []string, generation int64) *state.Upgrade {
	u, from := before.Upgrade, before.Version
	var unreached []string
	if u != nil {
		from, unreached = u.From, append(append(unreached, u.Through...), u.To)
	}
	switch {
	case from == "" || asked == from:
		return nil
	case u != nil && u.To == asked && u.Undone(generation):
		return u
	case u != nil && u.To == asked && u.UndoneAt.IsZero():
		same := *u
		same.Generation = generation
		return &same
	}
	return &state.Upgrade{
		From: from, To: asked, Generation: generation, Through: v1alpha1.StepsBetween(from, asked, append(unreached, listed...)),
	}
}

// refuseLower undoes an upgrade to a lower minor version than all pods run, before it is begun: it was accepted when they did not yet.
func refuseLower(u *state.Upgrade, now time.Time) *state.Upgrade {
	if u == nil || !u.UndoneAt.IsZero() {
		return u
	}
	from, known := v1alpha1.Minor(u.From)
	to, ok := v1alpha1.Minor(u.To)
	if !known || !ok || to >= from {
		return u
	}
	refused := *u
	refused.UndoneAt, refused.Reason = now.UTC().Truncate(time.Second), reason.UpgradeUndone
	refused.Message = "it is a lower minor version, which can't read all that may have been stored by now"
	return &refused
}

// versionOf is the version that pods are to run; asked is what the spec asks for. A tenant that sleeps has none: it is on record what
// it asks for.
func versionOf(u *state.Upgrade, asked string, generation int64, asleep bool) string {
	switch {
	case u == nil || asleep:
		return asked
	case u.Undone(generation):
		return u.From
	}
	return u.Step()
}

// begunAt is an upgrade whose pods could start at a time, zero for not yet.
func begunAt(u *state.Upgrade, since time.Time) *state.Upgrade {
	next := *u
	next.Since, next.Until = since, time.Time{}
	return &next
}

// bounded is an upgrade whose pods have this long to become ready, 0 for as long as they like. A clock that was ahead gives them no more.
func bounded(u *state.Upgrade, timeout time.Duration, now time.Time) *state.Upgrade {
	if u == nil || u.Since.IsZero() || !u.UndoneAt.IsZero() {
		return u
	}
	next := begunAt(u, begun(u.Since, now).UTC())
	if timeout > 0 {
		next.Until = next.Since.Add(timeout)
	}
	return next
}

// late reports whether pods of an upgrade have had their time to become ready.
func late(u *state.Upgrade, now time.Time) bool {
	return u != nil && u.UndoneAt.IsZero() && !u.Until.IsZero() && !now.Before(u.Until)
}

// afterStep notes in a rollout that is complete what that means for the upgrade it belongs to: it is at its end, or at the end of a step,
// which others are told of, but no more; or the rollout has brought back the version of before, and the upgrade stays undone. It reports
// whether another step is to follow.
func afterStep(r *rollout) bool {
	u := r.Data.Upgrade
	if r.Step != event.Available || u == nil || !u.UndoneAt.IsZero() {
		return false
	}
	if len(u.Through) == 0 {
		r.Data.Upgrade = nil
		return false
	}
	r.Data.Upgrade = &state.Upgrade{From: u.Through[0], To: u.To, Generation: u.Generation, Through: u.Through[1:]}
	r.Step, r.Facts = event.Exposed, []string{event.Upgraded}
	return true
}

// undoneBecause is the failure of a tenant whose upgrade was undone. also is what it suffers from beside, nil for nothing.
func undoneBecause(u *state.Upgrade, also *state.Failure) *state.Failure {
	step := u.Step()
	if u.Since.IsZero() {
		return &state.Failure{Reason: reason.UpgradeUndone, Message: fmt.Sprintf("%s was not begun, %s runs: %s", step, u.From, u.Message), Permanent: true}
	}
	message := fmt.Sprintf("pods of %s did not become ready in time and were taken back, %s runs again: %s", step, u.From, u.Message)
	if step != u.To {
		message = fmt.Sprintf("on the way to %s, %s", u.To, message)
	}
	if also != nil {
		message += fmt.Sprintf("; with %s: %s", u.From, also.Message)
	}
	return &state.Failure{Reason: reason.UpgradeUndone, Message: message, Permanent: true}
}

// chooseVersion has the rest of the turn work for the version that pods are to run.
func (t *turn) chooseVersion() {
	asked, asleep := t.Tenant.Spec.Kubernetes.Version, t.Tenant.Spec.Sleeps()
	was := t.data.Upgrade
	u := upgradeOf(&t.data, asked, name.UpgradeThrough(t.Tenant.Annotations), t.Generation)
	u = bounded(u, name.UpgradeTimeout(t.Tenant.Annotations), t.s.now())
	switch {
	case u != nil && asleep:
		u = begunAt(u, time.Time{})
	case !asleep:
		u = refuseLower(u, t.s.now())
	}
	if was != nil && !asleep { // what was on record while it slept never ran
		t.data.Version = was.From
	}
	t.data.Upgrade = u
	tenant := *t.Tenant
	tenant.Spec.Kubernetes.Version = versionOf(u, asked, t.Generation, asleep)
	t.subject.Tenant, t.spec = &tenant, &tenant.Spec
}

// beginUpgrade notes that pods of the upgrade can start from now on, unless that is noted.
func (t *turn) beginUpgrade() {
	u := t.data.Upgrade
	if u == nil || !u.UndoneAt.IsZero() || !u.Since.IsZero() || t.spec.Sleeps() {
		return
	}
	now := t.s.now().UTC().Truncate(time.Second)
	t.data.Upgrade = bounded(begunAt(u, now), name.UpgradeTimeout(t.Tenant.Annotations), now)
}

// setUpgradeTimer wakes the tenant when its upgrade has had its time.
func (t *turn) setUpgradeTimer(ctx context.Context) error {
	u, was := t.data.Upgrade, t.before.Upgrade
	if u == nil || u.Until.IsZero() || !u.UndoneAt.IsZero() || was != nil && was.Until.Equal(u.Until) && !t.Due() {
		return nil
	}
	return t.At(ctx, u.Until)
}

// undoLate has the version of before come back if pods of the upgrade's have had their time and aren't ready. That is written with what the
// pods say before they are taken away.
func (t *turn) undoLate(ctx context.Context) error {
	now := t.s.now().UTC().Truncate(time.Second)
	if !late(t.data.Upgrade, now) {
		return nil
	}
	live := &appsv1.Deployment{}
	err := t.s.kube.Get(ctx, kube.Deployments, t.Key.Namespace, name.Deployment(t.Key.Name), live)
	if apierrors.IsNotFound(err) || err == nil && complete(live) {
		return nil // it comes back with its time anew, or is about to be seen
	}
	if err != nil {
		return err
	}
	undone := *t.data.Upgrade
	undone.UndoneAt, undone.Reason, undone.Message = now, reason.PodsNotReady, "its pods don't say why"
	pods, _ := t.pods(ctx)
	if why := causeOrDeployments(pods, t.before.ConfigHash, deploymentCause(live)); why.Text != "" {
		undone.Reason, undone.Message = why.Reason, namingFields(t.spec.Kubernetes.APIServer, why.Text)
	}
	t.data.Upgrade, t.step = &undone, event.Exposed
	err = t.Done(ctx, loop.Outcome{Step: t.step, Data: t.data, Failure: undoneBecause(&undone, nil)})
	t.chooseVersion()
	return err
}

// noteStep writes that all pods run a version on the way, tells it, and goes on to the next.
func (t *turn) noteStep(ctx context.Context) error {
	if err := t.Done(ctx, loop.Outcome{Step: t.step, Data: t.data, Facts: t.facts}); err != nil {
		return err
	}
	t.before, t.facts = t.data, nil
	t.chooseVersion()
	return nil
}
