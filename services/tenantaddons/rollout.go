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
	now := time.Now()
	if left := s.soonest(of, t, now); left > 0 {
		t.Alarm(left, loop.Wake{Kind: wakeLook})
		return nil
	}
	w := &rolling{svc: s, turn: t, of: of, o: &tenantaddon.TenantAddon{}, now: now}
	err := s.kube.Get(ctx, kube.TenantAddons, of.Namespace, of.Name, w.o)
	switch {
	case apierrors.IsNotFound(err):
		t.NoAlarm()
		return s.orphaned(ctx, of)
	case err != nil:
		return err
	case !s.kube.InScope(kube.TenantAddons, w.o): // another installation's by now
		t.NoAlarm()
		s.forget(of)
		return nil
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
	t.Alarm(lookEvery, loop.Wake{Kind: wakeLook})
	return w.roll(ctx)
}

// orphaned removes the software of a TenantAddon that is gone: somebody has taken its finalizer off.
func (s *svc) orphaned(ctx context.Context, of types.NamespacedName) error {
	s.forget(of)
	all, err := s.index.releasesOf(of)
	if err != nil {
		return err
	}
	for n, is := range all {
		if is.deleting {
			continue
		}
		if err := s.delete(ctx, n, is.uid); err != nil {
			return err
		}
	}
	return nil
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
	status := w.o.Status
	status.ObservedGeneration = w.o.Generation
	r := &rollout{
		spec: w.o.Spec.Rollout, revision: status.Revision, wave: status.Wave, done: status.Revision != "" && status.Wave == "", now: w.now,
	}
	if w.o.Spec.Paused {
		r.frozen = "the TenantAddon is paused"
	}
	var err error
	if r.members, err = w.members(); err == nil {
		err = w.prepareInto(ctx, &status, r)
	}
	no := (*badError)(nil)
	switch {
	case errors.Is(err, errBusy):
		w.turn.Alarm(time.Second, loop.Wake{Kind: wakeLook})
		return nil
	case errors.As(err, &no):
		r.frozen = "the TenantAddon can't be used as it is: " + no.message
	case err != nil:
		return err
	}
	if status.RevisedAt != nil {
		r.since = status.RevisedAt.Time
	}
	if status.WaveReadySince != nil {
		r.waveReady = status.WaveReadySince.Time
	}
	d, wrong := r.decide()
	if wrong != nil && no == nil {
		no = &badError{tenantaddon.ReasonInvalid, wrong.Error()}
	}
	if no != nil {
		w.set(tenantaddon.ConditionValid, false, no.reason, no.message)
	} else {
		w.set(tenantaddon.ConditionValid, true, tenantaddon.ReasonSucceeded, "")
	}
	if r.members != nil && wrong == nil && r.revision != "" { // tenants keep what they have, until it is put right; all else is done
		refused, err := w.write(ctx, d)
		if err != nil {
			return err
		}
		if refused != nil && no == nil {
			no = &badError{tenantaddon.ReasonRefused, "the management cluster refuses AddonReleases: " + refused.Error()}
		}
		w.conclude(&status, d, no == nil)
	}
	if no != nil {
		w.notReady(no.reason, no.message)
		w.turn.Alarm(loop.HeldAgain(w.since(tenantaddon.ConditionRolledOut)), loop.Wake{Kind: wakeLook})
	}
	return w.tell(ctx, status)
}

// prepareInto finds out which revision the TenantAddon is now.
func (w *rolling) prepareInto(ctx context.Context, status *tenantaddon.TenantAddonStatus, r *rollout) error {
	p, err := w.prepare(ctx, w.o)
	if err != nil {
		return err
	}
	if status.Revision != p.revision {
		now := metav1.NewTime(w.now)
		status.Revision, status.RevisedAt, status.Wave, status.WaveReadySince = p.revision, &now, "", nil
		r.wave, r.done = "", false
	}
	status.Source, status.Digest, status.Version, r.revision = p.source, p.digest, p.version, p.revision
	return nil
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
	tenants, err := w.index.tenantsWith(selector, namespaces, w.of.Namespace)
	if err != nil {
		return nil, err
	}
	all := make([]*member, 0, len(tenants))
	for of, t := range tenants {
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

// write makes the AddonReleases as was decided, and deletes those of tenants that the TenantAddon isn't for any more. What the management cluster
// refuses of one tenant, as for a quota of its namespace, keeps nobody else waiting.
func (w *rolling) write(ctx context.Context, d *decision) (refused, err error) {
	wanted := make(map[types.NamespacedName]struct{}, len(d.allowed))
	for tenant, revision := range d.allowed {
		of := w.release(tenant)
		wanted[of] = struct{}{}
		t, there := w.index.tenant(tenant)
		if !there || t.deleting {
			continue
		}
		spec := w.asked(tenant.Name, revision, d.waiting[tenant])
		switch k := w.releases[of]; {
		case k != nil && k.deleting:
			continue // made anew once it is gone
		case k != nil && k.owner != t.uid: // an earlier tenant's of that name
			err = w.delete(ctx, of, k.uid)
		case k != nil && equality.Semantic.DeepEqual(k.spec, spec):
			continue
		default:
			err = w.apply(ctx, of, t, spec)
		}
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			refused, err = errors.Join(refused, fmt.Errorf("%s: %w", of, err)), nil
		}
		if err != nil {
			return refused, err
		}
	}
	for of, k := range w.releases {
		if _, there := wanted[of]; there || k.deleting {
			continue
		}
		if err := w.delete(ctx, of, k.uid); err != nil {
			return refused, err
		}
	}
	return refused, nil
}

// asked is what an AddonRelease asks of its tenant.
func (w *rolling) asked(tenant, revision, waiting string) tenantaddon.AddonReleaseSpec {
	spec := &w.o.Spec
	return tenantaddon.AddonReleaseSpec{
		Addon: tenantaddon.AddonRef{Namespace: w.of.Namespace, Name: w.of.Name}, Tenant: tenant, Revision: revision, Waiting: waiting,
		ReleaseName: releaseName(w.o), TargetNamespace: spec.TargetNamespace, OnRemoval: spec.OnRemoval, After: spec.After, ReadyWhen: spec.ReadyWhen,
		Timeout: spec.Timeout, Paused: spec.Paused,
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
func (s *svc) delete(ctx context.Context, of types.NamespacedName, uid types.UID) error {
	_, err := s.kube.DeleteOnly(ctx, kube.AddonReleases, &metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, UID: uid}, metav1.DeleteOptions{})
	return err
}

// end removes the software from all tenants, and lets the TenantAddon go once it is gone from them.
func (w *rolling) end(ctx context.Context) error {
	if !slices.Contains(w.o.Finalizers, name.FinalizerTenantAddon) {
		return nil
	}
	if len(w.releases) == 0 {
		var left metav1.PartialObjectMetadataList // the last look, which none must escape
		if err := w.kube.List(ctx, kube.AddonReleases, "", selectorOf(w.of), &left); err != nil {
			return err
		}
		if len(left.Items) > 0 {
			return fmt.Errorf("%w: there are AddonReleases that the watch hasn't shown yet", intent.ErrStale)
		}
		w.referred.follow(w.of)
		return w.finalizers(ctx, slices.DeleteFunc(slices.Clone(w.o.Finalizers), func(f string) bool { return f == name.FinalizerTenantAddon }))
	}
	for of, k := range w.releases {
		// What is said while it is going counts, too.
		spec := w.o.Spec
		if k.spec.OnRemoval != spec.OnRemoval || k.spec.Paused != spec.Paused {
			patch := map[string]any{"spec": map[string]any{"onRemoval": spec.OnRemoval, "paused": spec.Paused}}
			if err := w.kube.MergePatch(ctx, kube.AddonReleases, of.Namespace, of.Name, patch, nil); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if k.deleting {
			continue
		}
		if err := w.delete(ctx, of, k.uid); err != nil {
			return err
		}
	}
	status := w.o.Status
	status.ObservedGeneration = w.o.Generation
	status.Tenants.Removing = int32(len(w.releases))
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
