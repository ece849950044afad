package tenantaddons

// The turn of a tenant. It wakes on what the AddonReleases ask of it, on facts about it, and on what is otherwise inside it. It makes so what the
// AddonReleases ask, one after the other in their order, and their status.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// handle is a turn: of a TenantAddon, or of a tenant.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
	var err error
	switch t.Key.Kind {
	case event.TenantControlPlanes:
		err = s.tenantTurn(ctx, t)
	case event.TenantAddons:
		err = s.rollOut(ctx, t)
	}
	if errors.Is(err, errPartial) {
		return nil // the end of the list wakes the tenants and the TenantAddons again
	}
	return err
}

// work is a turn of a tenant.
type work struct {
	*svc
	turn *loop.Turn
	now  time.Time
	// in is the connection to the tenant, nil while nothing can be done in it; then away says why.
	in    *tenant
	away  *badError
	own   state.TenantAddons
	facts []loop.Tell
}

// one is an AddonRelease in a turn.
type one struct {
	of types.NamespacedName
	o  *tenantaddon.AddonRelease
	*report
	// status as it will be told.
	status tenantaddon.AddonReleaseStatus
	// repaired says that something was put right in this turn.
	repaired bool
	// gone is the fact that tells that the software isn't in the tenant any more, or no longer looked after; nil while it is.
	gone *loop.Tell
}

// installed reports whether what the tenant may have is applied in it.
func (a *one) installed() bool {
	return meta.IsStatusConditionTrue(a.conditions, tenantaddon.ConditionInstalled)
}

// reason and message are those of the condition Ready.
func (a *one) reason() string {
	if c := meta.FindStatusCondition(a.conditions, tenantaddon.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

func (a *one) message() string {
	if c := meta.FindStatusCondition(a.conditions, tenantaddon.ConditionReady); c != nil {
		return c.Message
	}
	return ""
}

// addon names the TenantAddon.
func (a *one) addon() types.NamespacedName {
	return types.NamespacedName{Namespace: a.o.Spec.Addon.Namespace, Name: a.o.Spec.Addon.Name}
}

// ready reports whether the software is ready in the tenant, at the revision that it may have.
func (a *one) ready() bool {
	return a.o.DeletionTimestamp == nil && meta.IsStatusConditionTrue(a.conditions, tenantaddon.ConditionReady)
}

// tenantTurn is the turn of a tenant.
func (s *svc) tenantTurn(ctx context.Context, t *loop.Turn) error {
	of := types.NamespacedName{Namespace: t.Key.Namespace, Name: t.Key.Name}
	seen, is, there, err := s.index.in(of)
	switch {
	case err != nil:
		return err
	case len(seen) == 0:
		t.NoAlarm()
		s.drop(t.Key)
		return s.nothing(ctx, t)
	case !there || is.deleting:
		t.NoAlarm()
		s.drop(t.Key)
		return s.letGo(ctx, t, of, seen)
	}
	w := &work{svc: s, turn: t, now: time.Now()}
	if err := t.OwnData(&w.own); err != nil {
		return err
	}
	all, err := w.read(ctx, seen, is.uid)
	if err != nil {
		return err
	}
	if err := w.reach(ctx); err != nil {
		return err
	}
	var failed error
	for _, a := range inOrder(all) {
		failed = errors.Join(failed, w.step(ctx, a, all))
	}
	if i := intent.Of(failed); failed != nil && (i == intent.Reread || i == intent.HandOver) {
		return failed
	}
	w.follow(all) //nolint:contextcheck // the watch outlives the turn
	return errors.Join(failed, w.note(ctx, all))
}

// nothing ends the state of a tenant that has no AddonReleases any more.
func (s *svc) nothing(ctx context.Context, t *loop.Turn) error {
	if t.Tenant == nil || t.Own() == nil || t.Own().Step == "" {
		return nil
	}
	return t.Done(ctx, loop.Outcome{Data: state.TenantAddons{}})
}

// letGo lets the AddonReleases of a tenant go that is being deleted: what is inside it goes with its data.
func (s *svc) letGo(ctx context.Context, turn *loop.Turn, tenant types.NamespacedName, all map[types.NamespacedName]seenRelease) error {
	t := &metav1.PartialObjectMetadata{}
	err := s.kube.Get(ctx, kube.TenantControlPlanes, tenant.Namespace, tenant.Name, t)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case t.DeletionTimestamp == nil: // another installation's by now, or made anew: then it is seen soon
		return s.leave(ctx, turn, all)
	}
	for of, is := range all {
		o := &tenantaddon.AddonRelease{}
		err := s.kube.Get(ctx, kube.AddonReleases, of.Namespace, of.Name, o)
		if apierrors.IsNotFound(err) || err == nil && o.UID != is.uid {
			continue
		}
		if err == nil && o.DeletionTimestamp == nil {
			_, err = s.kube.DeleteOnly(ctx, kube.AddonReleases, &o.ObjectMeta, metav1.DeleteOptions{})
		}
		if err == nil {
			err = s.release(ctx, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leave lets the AddonReleases go, in time, that are to be removed from a tenant which is another installation's by now. What is in it is left.
func (s *svc) leave(ctx context.Context, turn *loop.Turn, all map[types.NamespacedName]seenRelease) error {
	for of, is := range all {
		o := &tenantaddon.AddonRelease{}
		err := s.kube.Get(ctx, kube.AddonReleases, of.Namespace, of.Name, o)
		if apierrors.IsNotFound(err) || err == nil && (o.UID != is.uid || o.DeletionTimestamp == nil) {
			continue
		}
		if err != nil {
			return err
		}
		if left := s.abandonAfter - time.Since(o.DeletionTimestamp.Time); left > 0 {
			turn.Alarm(left, loop.Wake{Kind: wakeLook})
			continue
		}
		s.log.Warn("a TenantAddon is left in a tenant of another installation", "tenant", turn.Key.String(), "addon", is.addon.String())
		s.metrics.abandoned.Inc()
		if err := s.release(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// release takes the finalizer off an AddonRelease.
func (s *svc) release(ctx context.Context, o *tenantaddon.AddonRelease) error {
	left := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == name.FinalizerTenantAddon })
	if len(left) == len(o.Finalizers) {
		return nil
	}
	// Of others' finalizers none is lost: the patch holds only for those that were read.
	patch := []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": o.UID},
		{"op": "test", "path": "/metadata/finalizers", "value": o.Finalizers},
		{"op": "replace", "path": "/metadata/finalizers", "value": left},
	}
	err := s.kube.JSONPatch(ctx, kube.AddonReleases, o.Namespace, o.Name, patch, nil)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err):
		return fmt.Errorf("%w: %w", intent.ErrStale, err)
	}
	return err
}

// read reads the tenant's AddonReleases. Those of an earlier tenant of its name are let go.
func (w *work) read(ctx context.Context, seen map[types.NamespacedName]seenRelease, uid types.UID) (all []*one, err error) {
	for of, is := range seen {
		o := &tenantaddon.AddonRelease{}
		err := w.kube.Get(ctx, kube.AddonReleases, of.Namespace, of.Name, o)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if is.owner != uid {
			if o.DeletionTimestamp == nil {
				continue // its TenantAddon has it deleted
			}
			if err := w.release(ctx, o); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, &one{of: of, o: o, report: reportOn(o.Status.Conditions, o.Generation, w.now), status: o.Status})
	}
	slices.SortFunc(all, func(a, b *one) int { return cmp.Compare(a.of.Name, b.of.Name) })
	return all, nil
}

// inOrder are first those that are removed, the last of the order first, then the others in their order. Those that wait for each other come in
// the order of their names.
func inOrder(all []*one) []*one {
	var sorted []*one
	done := map[types.NamespacedName]bool{}
	var visit func(a *one)
	visit = func(a *one) {
		if done[a.addon()] {
			return
		}
		done[a.addon()] = true
		for _, before := range a.o.Spec.After {
			if b := find(all, types.NamespacedName{Namespace: a.o.Spec.Addon.Namespace, Name: before}); b != nil {
				visit(b)
			}
		}
		sorted = append(sorted, a)
	}
	for _, a := range all {
		visit(a)
	}
	var going, staying []*one
	for _, a := range sorted {
		if a.o.DeletionTimestamp != nil {
			going = append(going, a)
		} else {
			staying = append(staying, a)
		}
	}
	slices.Reverse(going)
	return append(going, staying...)
}

// find is the AddonRelease of a TenantAddon; nil for none.
func find(all []*one, addon types.NamespacedName) *one {
	i := slices.IndexFunc(all, func(a *one) bool { return a.addon() == addon })
	if i < 0 {
		return nil
	}
	return all[i]
}

// tell writes the status of an AddonRelease, if it has another.
func (w *work) tell(ctx context.Context, a *one) error {
	slices.SortFunc(a.conditions, func(x, y metav1.Condition) int { return cmp.Compare(x.Type, y.Type) })
	a.status.Conditions = a.conditions
	if equality.Semantic.DeepEqual(a.status, a.o.Status) {
		return nil
	}
	err := w.kube.ApplyStatus(ctx, kube.AddonReleases, &a.o.ObjectMeta, a.status)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		a.o.Status = *a.status.DeepCopy()
		a.o.ResourceVersion = "" // another one now
	}
	return err
}

// note keeps in the tenant's bucket what its TenantAddons have come to, tells the facts that follow, and then lets those go that are removed: a
// crash on the way tells them all the same.
func (w *work) note(ctx context.Context, all []*one) error {
	after := state.TenantAddons{Addons: map[string]state.TenantAddon{}}
	for _, a := range all {
		is := state.TenantAddon{Revision: a.status.Revision, Inputs: a.status.Inputs}
		c := meta.FindStatusCondition(a.conditions, tenantaddon.ConditionReady)
		if c != nil {
			is.Reason = c.Reason
		}
		before, there := w.own.Addons[a.addon().String()]
		if a.gone != nil {
			if there {
				w.facts = append(w.facts, *a.gone)
			}
			continue
		}
		if a.installed() && before.Inputs != is.Inputs {
			w.facts = append(w.facts, loop.Tell{What: event.Installed, Data: event.TenantAddonInstalled{
				About: w.turn.About(), Addon: a.about(), HelmRevision: int(a.status.HelmRevision), Objects: int(a.status.Objects),
			}})
		}
		if !failure(is.Reason) && a.status.Failed { // the failure goes on, and was told
			is.Reason = before.Reason
		} else if a.status.Failed && (before.Reason != is.Reason || before.Revision != is.Revision) {
			w.facts = append(w.facts, loop.Tell{What: event.NotInstalled, Data: event.TenantAddonNotInstalled{
				About: w.turn.About(), Addon: a.about(), Reason: c.Reason, Message: state.ClipMessage(c.Message),
			}})
		}
		if !a.installed() {
			is.Inputs = before.Inputs
		}
		after.Addons[a.addon().String()] = is
	}
	if w.turn.Tenant != nil {
		if err := w.turn.Done(ctx, loop.Outcome{Step: event.Installed, Data: after, Facts: w.facts}); err != nil {
			return err
		}
	}
	for _, a := range all {
		if a.gone != nil {
			if err := w.release(ctx, a.o); err != nil {
				return err
			}
		}
	}
	return nil
}

// failure reports whether a reason is that of a failure; others say what is waited for.
func failure(reason string) bool {
	switch reason {
	case tenantaddon.ReasonTenantUnavailable, tenantaddon.ReasonTenantAsleep, tenantaddon.ReasonSourceUnavailable, tenantaddon.ReasonWaitingForAddon,
		tenantaddon.ReasonPaused, tenantaddon.ReasonProgressing, tenantaddon.ReasonWaiting:
		return false
	}
	return true
}

// about names the TenantAddon in facts.
func (a *one) about() event.TenantAddon {
	return event.TenantAddon{
		Namespace: a.o.Spec.Addon.Namespace, Name: a.o.Spec.Addon.Name, Revision: a.status.Revision, Version: a.status.Version,
	}
}
