package tenantaddons

// The turn of a TenantAddon. It wakes on the TenantAddon, what that refers to, the tenants that it may be for and how its AddonReleases stand. It
// makes so an AddonRelease for each tenant, with the revision that the tenant may have, and the TenantAddon's status.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// planEvery is how often a TenantAddon has a turn at most because its AddonReleases stand otherwise.
const planEvery = 100 * time.Millisecond

// rolling is a turn of a TenantAddon.
type rolling struct {
	*svc
	turn *loop.Turn
	of   types.NamespacedName
	o    *tenantaddon.TenantAddon
	now  time.Time
	*report
	// releases are its AddonReleases as they were read, by name.
	releases map[types.NamespacedName]*known
}

// rollOut is the turn of a TenantAddon.
func (s *svc) rollOut(ctx context.Context, t *loop.Turn) error {
	of := types.NamespacedName{Namespace: t.Key.Namespace, Name: t.Key.Name}
	if !s.index.whole() {
		return nil // woken once it is
	}
	now := time.Now()
	if left := s.soonest(of, t, now); left > 0 {
		t.Alarm(left, loop.Wake{Kind: wakeLook})
		return nil
	}
	w := &rolling{svc: s, turn: t, of: of, o: &tenantaddon.TenantAddon{}, now: now}
	err := s.kube.Get(ctx, kube.TenantAddons, of.Namespace, of.Name, w.o)
	if apierrors.IsNotFound(err) || err == nil && !s.kube.InScope(kube.TenantAddons, w.o) {
		t.NoAlarm()
		s.forget(of)
		return nil
	}
	if err != nil {
		return err
	}
	w.report = reportOn(w.o.Status.Conditions, w.o.Generation, now)
	if w.releases, err = s.standings(ctx, of); err != nil {
		return err
	}
	if w.o.DeletionTimestamp != nil {
		return w.end(ctx)
	}
	if !slices.Contains(w.o.Finalizers, name.FinalizerTenantAddon) {
		if err := w.finalizers(ctx, append(slices.Clone(w.o.Finalizers), name.FinalizerTenantAddon)); err != nil {
			return err
		}
	}
	return w.roll(ctx)
}

// soonest is how long a turn has to wait for which nothing but AddonReleases that stand otherwise is the cause.
func (s *svc) soonest(of types.NamespacedName, t *loop.Turn, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.planned[of].Add(planEvery).Sub(now)
	if left > 0 && len(t.Events) == 0 && !slices.ContainsFunc(t.Wakes, func(w loop.Wake) bool { return w.Kind != wakeStands }) {
		return left
	}
	s.planned[of] = now
	return 0
}

// roll brings the rollout as far as it comes.
func (w *rolling) roll(ctx context.Context) error {
	members, err := w.members()
	var p *prepared
	if err == nil {
		p, err = w.prepare(ctx, w.o)
	}
	status := w.o.Status
	status.ObservedGeneration = w.o.Generation
	bad := (*badError)(nil)
	switch {
	case errors.As(err, &bad):
		// Tenants keep what they have, until it is put right.
		w.set(tenantaddon.ConditionValid, false, bad.reason, bad.message)
		w.turn.Alarm(loop.HeldAgain(w.since(tenantaddon.ConditionValid)), loop.Wake{Kind: wakeLook})
		w.notReady(bad.reason, bad.message)
		return w.tell(ctx, status)
	case err != nil:
		return err
	}
	w.set(tenantaddon.ConditionValid, true, tenantaddon.ReasonSucceeded, "")
	if status.Revision != p.revision {
		now := metav1.NewTime(w.now)
		status.Revision, status.RevisedAt, status.Wave, status.WaveReadySince = p.revision, &now, "", nil
	}
	status.Source, status.Digest, status.Version = p.source, p.digest, p.version
	r := &rollout{
		spec: w.o.Spec.Rollout, revision: p.revision, since: status.RevisedAt.Time, members: members, wave: status.Wave, paused: w.o.Spec.Paused, now: w.now,
		done: w.o.Status.Revision == p.revision && status.Wave == "",
	}
	if status.WaveReadySince != nil {
		r.waveReady = status.WaveReadySince.Time
	}
	d, err := r.decide()
	if err != nil {
		return invalid("%s", err)
	}
	if err := w.write(ctx, d); err != nil {
		return err
	}
	w.conclude(&status, d)
	return w.tell(ctx, status)
}

// badError is what keeps a TenantAddon from being rolled out, or one from being installed, until something changes.
type badError struct{ reason, message string }

func (e *badError) Error() string { return e.message }

func bad(reason, message string, args ...any) error {
	return &badError{reason, fmt.Sprintf(message, args...)}
}

func invalid(message string, args ...any) error {
	return bad(tenantaddon.ReasonInvalid, message, args...)
}

// members are the tenants that the TenantAddon is for.
func (w *rolling) members() ([]*member, error) {
	spec := &w.o.Spec
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	if err != nil {
		return nil, invalid("spec.selector: %s", err)
	}
	var namespaces labels.Selector
	if spec.NamespaceSelector != nil {
		switch namespaces, err = metav1.LabelSelectorAsSelector(spec.NamespaceSelector); {
		case err != nil:
			return nil, invalid("spec.namespaceSelector: %s", err)
		case w.of.Namespace != w.fleetNamespace:
			return nil, invalid("spec.namespaceSelector: may be given in namespace %s alone, for it runs software in tenants of other namespaces; leave it out, "+
				"and the TenantAddon is for the tenants of %s", w.fleetNamespace, w.of.Namespace)
		case !w.fleet():
			return nil, invalid("spec.namespaceSelector: this installation works on the tenants of one namespace alone; leave it out")
		}
	}
	var all []*member
	for of, t := range w.index.tenantsWith(selector, namespaces, w.of.Namespace) {
		if t.deleting {
			continue
		}
		m := &member{of: of, labels: t.labels, created: t.created, paused: t.pausedAt(w.now)}
		if m.paused && !t.until.IsZero() {
			w.turn.Alarm(t.until.Sub(w.now), loop.Wake{Kind: wakeLook})
		}
		if k := w.releases[w.release(of)]; k != nil && k.owner == t.uid {
			m.standing = k.standing
		}
		all = append(all, m)
	}
	return all, nil
}

// release is the name of the AddonRelease for a tenant.
func (w *rolling) release(tenant types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: tenant.Namespace, Name: tenant.Name + "." + w.of.Name + "." + w.of.Namespace}
}

// write makes the AddonReleases as was decided, and deletes those of tenants that the TenantAddon isn't for any more.
func (w *rolling) write(ctx context.Context, d *decision) error {
	wanted := make(map[types.NamespacedName]struct{}, len(d.allowed))
	for tenant, revision := range d.allowed {
		of := w.release(tenant)
		wanted[of] = struct{}{}
		t, there := w.index.tenant(tenant)
		if !there || t.deleting {
			continue
		}
		spec := w.asked(tenant.Name, revision, d.waiting[tenant])
		k := w.releases[of]
		switch {
		case k != nil && k.deleting:
			continue // made anew once it is gone
		case k != nil && k.owner != t.uid: // an earlier tenant's of that name
			if err := w.delete(ctx, of, k); err != nil {
				return err
			}
			continue
		case k != nil && equality.Semantic.DeepEqual(k.spec, spec):
			continue
		}
		if err := w.apply(ctx, of, t, spec); err != nil {
			return err
		}
	}
	for of, k := range w.releases {
		if _, there := wanted[of]; there || k.deleting {
			continue
		}
		if err := w.delete(ctx, of, k); err != nil {
			return err
		}
	}
	return nil
}

// asked is what an AddonRelease asks of its tenant.
func (w *rolling) asked(tenant, revision, waiting string) tenantaddon.AddonReleaseSpec {
	spec := &w.o.Spec
	return tenantaddon.AddonReleaseSpec{
		Addon: tenantaddon.AddonRef{Namespace: w.of.Namespace, Name: w.of.Name}, Tenant: tenant, Revision: revision, Waiting: waiting,
		ReleaseName: releaseName(w.o), TargetNamespace: spec.TargetNamespace, OnRemoval: spec.OnRemoval, After: spec.After, Paused: spec.Paused,
	}
}

// releaseName is the name of the Helm release.
func releaseName(o *tenantaddon.TenantAddon) string {
	if o.Spec.ReleaseName != "" {
		return o.Spec.ReleaseName
	}
	return o.Name
}

// apply makes an AddonRelease as it must be. The tenant owns it, so that it goes with the tenant.
func (w *rolling) apply(ctx context.Context, of types.NamespacedName, t seenTenant, spec tenantaddon.AddonReleaseSpec) error {
	o := &tenantaddon.AddonRelease{ObjectMeta: metav1.ObjectMeta{
		Namespace: of.Namespace, Name: of.Name, Finalizers: []string{name.FinalizerTenantAddon},
		Labels: map[string]string{
			name.LabelTenant: spec.Tenant, name.LabelTenantAddon: w.of.Name, name.LabelTenantAddonNamespace: w.of.Namespace,
		},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: kube.TenantControlPlanes.GroupVersion.String(), Kind: kube.TenantControlPlanes.Kind, Name: spec.Tenant, UID: t.uid,
		}},
	}, Spec: spec}
	if filter, there := w.o.Labels[name.LabelWatchFilter]; there {
		o.Labels[name.LabelWatchFilter] = filter
	}
	if err := w.kube.Apply(ctx, kube.AddonReleases, o); err != nil {
		if apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // goes with its tenants
		}
		return err
	}
	w.learn(w.of, o)
	return nil
}

// delete has an AddonRelease removed, and with it the software from the tenant.
func (w *rolling) delete(ctx context.Context, of types.NamespacedName, k *known) error {
	_, err := w.kube.DeleteOnly(ctx, kube.AddonReleases, &metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, UID: k.uid}, metav1.DeleteOptions{})
	return err
}

// end removes the software from all tenants, and lets the TenantAddon go once it is gone from them.
func (w *rolling) end(ctx context.Context) error {
	if !slices.Contains(w.o.Finalizers, name.FinalizerTenantAddon) {
		return nil
	}
	// What isn't in memory as it is read must not be missed: this is the last look.
	if len(w.releases) == 0 && len(w.index.releasesOf(w.of)) == 0 {
		w.referred.follow(w.of)
		return w.finalizers(ctx, slices.DeleteFunc(slices.Clone(w.o.Finalizers), func(f string) bool { return f == name.FinalizerTenantAddon }))
	}
	for of, k := range w.releases {
		if k.deleting {
			continue
		}
		if onRemoval := w.o.Spec.OnRemoval; k.spec.OnRemoval != onRemoval || k.spec.Paused != w.o.Spec.Paused {
			k.spec.OnRemoval, k.spec.Paused = onRemoval, w.o.Spec.Paused
			if t, there := w.index.tenant(types.NamespacedName{Namespace: of.Namespace, Name: k.spec.Tenant}); there && t.uid == k.owner {
				if err := w.apply(ctx, of, t, k.spec); err != nil {
					return err
				}
			}
		}
		if err := w.delete(ctx, of, k); err != nil {
			return err
		}
	}
	status := w.o.Status
	status.ObservedGeneration = w.o.Generation
	status.Tenants.Removing = int32(len(w.releases)) //nolint:gosec // objects of a cluster
	w.notReady(tenantaddon.ReasonDeleting, w.removing())
	return w.tell(ctx, status)
}

// removing says from which tenants the software isn't gone yet.
func (w *rolling) removing() string {
	var left, failed []string
	for of, k := range w.releases {
		if !k.deleting {
			continue
		}
		t := of.Namespace + "/" + k.spec.Tenant
		if left = append(left, t); k.reason == tenantaddon.ReasonRemovalFailed || k.reason == tenantaddon.ReasonTenantUnavailable {
			failed = append(failed, t+": "+k.message)
		}
	}
	if len(failed) > 0 {
		return fmt.Sprintf("it is being removed from %d tenants, and can't be from %d: %s", len(left), len(failed), listed(failed))
	}
	return fmt.Sprintf("it is being removed from %d tenants: %s", len(w.releases), listed(left))
}

// finalizers sets those of the TenantAddon.
func (w *rolling) finalizers(ctx context.Context, all []string) error {
	patch := map[string]any{"metadata": map[string]any{"finalizers": all, "resourceVersion": w.o.ResourceVersion, "uid": w.o.UID}}
	err := w.kube.MergePatch(ctx, kube.TenantAddons, w.of.Namespace, w.of.Name, patch, w.o)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", intent.ErrStale, err)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
