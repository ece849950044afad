package intake

// Wakes on a command that was applied and on the watch of TenantControlPlanes. Makes the tenant's bucket and its spec,
// every default resolved. Tells intake.accepted and intake.deleting.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// get reads the tenant's object; nil when there is none.
func (s *svc) get(ctx context.Context, key events.Key) (*v1alpha1.TenantControlPlane, error) {
	o := &v1alpha1.TenantControlPlane{}
	err := s.kube.Get(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// syncTenant brings the spec in line with the object as it is now.
func (s *svc) syncTenant(ctx context.Context, t *loop.Turn, now time.Time) error {
	o, err := s.get(ctx, t.Key)
	if err != nil {
		return err
	}
	if o != nil && !s.kube.InScope(kube.TenantControlPlanes, o) {
		return s.release(ctx, t)
	}
	if o == nil || o.DeletionTimestamp != nil && !slices.Contains(o.Finalizers, name.FinalizerTenant) {
		// Gone, or kept only by a finalizer of somebody else's: ours is off because nothing is left, or by hand.
		s.held.note(t.Key, false)
		if o != nil && !v1alpha1.MadeByKamaji(o) {
			if err := s.unhold(ctx, o, name.FinalizerSoot); err != nil { // of a deletion that Kamaji has left undone
				return err
			}
		}
		return s.vanished(ctx, t)
	}
	if t.Tenant == nil && s.holds(t.Key, o) {
		return nil
	}
	return s.writeSpec(ctx, t, o, now)
}

// adopted reports whether a tenant's object carries what intake adds to it: the record of its DataStore and the finalizer. Labels are no part
// of that: Kamaji's Cluster API provider takes away all but its own whenever it looks at the object, so that who puts them back does so for
// ever.
func adopted(o *metav1.ObjectMeta) bool {
	_, recorded := o.Annotations[name.AnnotationDataStore]
	return recorded && slices.Contains(o.Finalizers, name.FinalizerTenant)
}

func generation(o *metav1.ObjectMeta) string { return strconv.FormatInt(o.Generation, 10) }

// adopt adds what intake adds to an object, unless it is there: the finalizer, and the record of its DataStore. A command's apply carries
// all of it already. Of an object that Kamaji made it takes off what Kamaji alone would.
func (s *svc) adopt(ctx context.Context, o *v1alpha1.TenantControlPlane, dataStore string) error {
	labels, annotations := map[string]string{}, recorded(o, dataStore, nil)
	ds := label(dataStore)
	if have, recorded := o.Annotations[name.AnnotationDataStore]; !recorded || have != ds {
		if annotations == nil {
			annotations = map[string]any{}
		}
		annotations[name.AnnotationDataStore] = ds
		if ds != "" && o.Labels[name.LabelDataStore] != ds {
			labels[name.LabelDataStore] = ds
		}
	}
	return s.add(ctx, kube.TenantControlPlanes, &o.ObjectMeta, labels, annotations, name.FinalizerTenant, o)
}

// recorded is what of the annotation must change that lists the DataStores besides a tenant's own that may hold something of it, nil for
// nothing: those of overrides, the one that its data are to move to, and those that they have moved from. A DataStore that is none of these
// any more stays on it until nothing is left there, as gone says.
func recorded(o *v1alpha1.TenantControlPlane, dataStore string, gone []string) map[string]any {
	have, noted := o.Annotations[name.AnnotationDatastoreOverrides]
	stores := slices.DeleteFunc(name.Overrides(o.Annotations), func(n string) bool { return slices.Contains(gone, n) })
	stores = append(stores, o.Spec.DataStore, o.Status.Storage.DataStoreName, name.DataStore(o.Labels, o.Annotations))
	for _, x := range o.Spec.DataStoreOverrides {
		stores = append(stores, x.DataStore)
	}
	stores = slices.DeleteFunc(stores, func(n string) bool { return n == "" || n == dataStore })
	slices.Sort(stores)
	switch want := name.OverridesValue(slices.Compact(stores)); {
	case want == "" && noted:
		return map[string]any{name.AnnotationDatastoreOverrides: nil}
	case want != have:
		return map[string]any{name.AnnotationDatastoreOverrides: want}
	}
	return nil
}

// withdrawn takes the DataStores that hold nothing of a tenant any more off its annotation. The watch then brings that into
// its spec.
func (s *svc) withdrawn(ctx context.Context, t *loop.Turn, e loop.Event) error {
	var gone event.DatastoreWithdrawn
	if err := e.DataAs(&gone); err != nil {
		return &intent.Permanent{Reason: reason.InvalidFact, Message: "datastore.withdrawn can't be read", Err: err}
	}
	o, err := s.get(ctx, t.Key)
	if err != nil || o == nil || string(o.UID) != gone.UID || !s.kube.InScope(kube.TenantControlPlanes, o) {
		return err
	}
	annotations := recorded(o, record(o, cmp.Or(name.DataStore(o.Labels, o.Annotations), o.Spec.DataStore)), gone.DataStores)
	if annotations == nil {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	err = s.kube.MergePatch(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, patch, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// migrated records that a tenant's data are in another DataStore now, and in the former one still, as long as they are kept there.
func (s *svc) migrated(ctx context.Context, t *loop.Turn, e loop.Event) error {
	var fact event.DatastoreMigrated
	if err := e.DataAs(&fact); err != nil {
		return &intent.Permanent{Reason: reason.InvalidFact, Message: "datastore.migrated can't be read", Err: err}
	}
	if len(fact.Resources) > 0 { // which the annotation lists already
		return nil
	}
	o, err := s.get(ctx, t.Key)
	if err != nil || o == nil || string(o.UID) != fact.UID || !s.kube.InScope(kube.TenantControlPlanes, o) {
		return err
	}
	annotations := recorded(o, fact.To, nil)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[name.AnnotationDataStore] = label(fact.To)
	metadata := map[string]any{"annotations": annotations, "labels": map[string]any{name.LabelDataStore: label(fact.To)}}
	err = s.kube.MergePatch(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, map[string]any{"metadata": metadata}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// called wakes a tenant to which somebody has connected, if that is to wake it, as the command does. It reports whether there was something
// to wake.
func (s *svc) called(ctx context.Context, t *loop.Turn, e loop.Event) (woken bool, err error) {
	return s.moved(ctx, t, e, func(o *v1alpha1.TenantControlPlane) (map[string]any, error) {
		if o.Annotations[name.AnnotationWakeOn] != name.WakeOnConnection {
			return nil, nil
		}
		return waker(e.Time())(&object{ObjectMeta: o.ObjectMeta, tenant: o})
	})
}

// idle puts a tenant to sleep that nobody has used for as long as its annotation says. It reports whether there was something to put to
// sleep.
func (s *svc) idle(ctx context.Context, t *loop.Turn, e loop.Event) (slept bool, err error) {
	return s.moved(ctx, t, e, func(o *v1alpha1.TenantControlPlane) (map[string]any, error) {
		if name.IdleTime(o.Annotations) == 0 {
			return nil, nil
		}
		return besideSchedule(map[string]any{}, &o.ObjectMeta, true, name.SleptByIdleness, e.Time()), nil
	})
}

// moved writes the patch that a fact about a tenant leads to, unless it is about another object or one that is being deleted, and reports
// whether there was one.
func (s *svc) moved(
	ctx context.Context, t *loop.Turn, e loop.Event, patchOf func(*v1alpha1.TenantControlPlane) (map[string]any, error),
) (bool, error) {
	var fact event.About
	if err := e.DataAs(&fact); err != nil {
		return false, &intent.Permanent{Reason: reason.InvalidFact, Message: e.Service + "." + e.What + " can't be read", Err: err}
	}
	o, err := s.get(ctx, t.Key)
	if err != nil || o == nil || string(o.UID) != fact.UID || o.DeletionTimestamp != nil || !s.kube.InScope(kube.TenantControlPlanes, o) {
		return false, err
	}
	patch, err := patchOf(o)
	if len(provided(&object{ObjectMeta: o.ObjectMeta, tenant: o}, patch)) > 0 {
		delete(patch, "spec") // which its provider would put back
	}
	if err != nil || len(patch) == 0 {
		return false, err
	}
	within(patch, "metadata")["resourceVersion"] = o.ResourceVersion
	err = s.kube.MergePatch(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, patch, nil)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsConflict(err):
		return false, fmt.Errorf("%w: %w", intent.ErrStale, err)
	}
	return err == nil, err
}

// add adds labels, annotations and a finalizer to an object and decodes the result into out; without anything to add it does
// nothing.
func (s *svc) add(
	ctx context.Context, r kube.Resource, o *metav1.ObjectMeta, labels map[string]string, annotations map[string]any, finalizer string, out any,
) error {
	meta := map[string]any{}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if has, soot := slices.Contains(o.Finalizers, finalizer), slices.Contains(o.Finalizers, name.FinalizerSoot); !has || soot {
		finalizers := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == name.FinalizerSoot })
		if !has {
			finalizers = append(finalizers, finalizer)
		}
		// A merge patch replaces the list, so it must be the list that was read.
		meta["finalizers"], meta["resourceVersion"] = finalizers, o.ResourceVersion
	}
	if len(meta) == 0 {
		return nil
	}
	err := s.kube.MergePatch(ctx, r, o.Namespace, o.Name, map[string]any{"metadata": meta}, out)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", intent.ErrStale, err)
	}
	return err
}

// specAnnotations are the annotations that change what services do.
func specAnnotations(o *metav1.ObjectMeta) map[string]string {
	kept := map[string]string{}
	for _, k := range []string{
		name.AnnotationPaused, name.AnnotationPausedUntil, name.AnnotationTransfer, name.AnnotationDeleteForMove, name.AnnotationKubeconfigSecretKey,
		name.AnnotationMigrationTimeout, name.AnnotationMigrationGrace, name.AnnotationCleanupPriorMigration, name.AnnotationDatastoreSelector,
		name.AnnotationDataStore, name.AnnotationDatastoreOverrides, name.AnnotationKubeletServing, name.AnnotationUpgradeTimeout,
		name.AnnotationUpgradeThrough,
		name.AnnotationSleepAt, name.AnnotationWakeAt, name.AnnotationTimeZone,
		name.AnnotationSleptAt, name.AnnotationSleptBy, name.AnnotationWokenAt, name.AnnotationWakeOn, name.AnnotationSleepWhenIdle,
		name.AnnotationAdopt, name.AnnotationRestoreFrom, name.AnnotationCloneOf, name.AnnotationArgoCDCluster,
		name.AnnotationBackupLocation, name.AnnotationBackupSchedule, name.AnnotationBackupKeep, name.AnnotationBackupAt,
		name.AnnotationRestoreInPlace,
		name.AnnotationQuotaBytes, name.AnnotationQuotaObjects,
	} {
		if v, ok := o.Annotations[k]; ok {
			kept[k] = v
		}
	}
	return kept
}

// specLabels are those of the object that services may look at, without those of the bookkeeping.
func specLabels(o *metav1.ObjectMeta) map[string]string {
	kept := maps.Clone(o.Labels)
	delete(kept, name.LabelPartition)
	return kept
}

// desired is the spec of a tenant: a pure function of its object, its DataStore and what was accepted before.
func desired(
	o *v1alpha1.TenantControlPlane, dataStore string, before *state.Tenant, beforeGeneration int64, trace string, now time.Time,
) state.Tenant {
	effective := o.DeepCopy()
	effective.Spec.DataStore = dataStore
	v1alpha1.Default(effective)
	paused, until, _ := name.Paused(o.Annotations, now)
	tenant := state.Tenant{
		Namespace: o.Namespace, Name: o.Name, Annotations: specAnnotations(&o.ObjectMeta), Labels: specLabels(&o.ObjectMeta),
		AcceptedAt: now.UTC(), Deleting: o.DeletionTimestamp != nil, Paused: paused, PausedUntil: until,
		Seen: fingerprint(&o.ObjectMeta), TraceParent: trace, Spec: effective.Spec,
	}
	tenant.Transfer = transferOf(o, before)
	if !tenant.Deleting {
		tenant.InPlace, _ = inPlaceOf(o, before) // waitOf says what can't be read
	}
	if !tenant.Deleting && !tenant.Sleeps() { // else no schedule changes anything
		tenant.Sleep = stopped(tenant.InPlace, sleepOf(&o.ObjectMeta, now))
	}
	if !tenant.Deleting {
		tenant.Backups = backupsAt(&o.ObjectMeta, now)
	}
	var bad refusal
	if tenant.Quota, bad = quotaOf(o.Annotations); bad != nil && before != nil {
		tenant.Quota = before.Quota // nobody gets more by a slip of the pen
	}
	if tenant.Sleep.Asleep {
		tenant.Spec.ControlPlane.Deployment.Replicas = new(int32)
	}
	if had := o.Status.Storage; had.DataStoreName != "" {
		tenant.Setup = state.Account{DataStore: had.DataStoreName, Schema: had.Setup.Schema, User: had.Setup.User}
		tenant.Overridden = had.Overrides
	}
	if before != nil && beforeGeneration == o.Generation {
		tenant.AcceptedAt = before.AcceptedAt
		if trace == "" {
			tenant.TraceParent = before.TraceParent
		}
	}
	return tenant
}

// transferOf tells one transfer to another management cluster from the next; empty for none. Before clusterctl deletes what it has moved, it
// writes one annotation over all others.
func transferOf(o *v1alpha1.TenantControlPlane, before *state.Tenant) string {
	asked, is := o.Annotations[name.AnnotationTransfer]
	_, moved := o.Annotations[name.AnnotationDeleteForMove]
	if moved && !is && before != nil && before.Transfer != "" {
		return before.Transfer
	}
	if moved || is {
		return events.ID(asked)
	}
	return ""
}

// acceptance is what follows from a tenant's object for its spec.
type acceptance struct {
	tenant state.Tenant
	// outcome is to be written; nil when the spec says all of it.
	outcome *loop.Outcome
}

// accept chooses the tenant's DataStore, adopts its object and says what its spec must be. c is the command that led to it, nil when
// the object was written by other means. The caller writes the outcome and then calls noteAccepted.
func (s *svc) accept(ctx context.Context, t *loop.Turn, o *v1alpha1.TenantControlPlane, c *command, now time.Time) (*acceptance, error) {
	if err := t.Adopt(ctx, string(o.UID), o.Generation); err != nil {
		return nil, err
	}
	before, beforeGeneration := t.Tenant, int64(0)
	if own := t.Own(); own != nil {
		beforeGeneration = own.Generation
	}
	dataStore, missing := assigned(o, before, s.fallback), ""
	if o.DeletionTimestamp == nil {
		if dataStore == "" {
			var err error
			if dataStore, missing, err = s.place(t.Key, o.Annotations, len(o.Spec.DataStoreOverrides) > 0); err != nil {
				return nil, err
			}
			if missing != "" && s.index.hasReservations() {
				t.Alarm(reservedFor+time.Second, loop.Wake{Kind: wakeDataStores}) // one of them may not be used
			}
		}
		adopt := func(ctx context.Context) error { return s.adopt(ctx, o, record(o, dataStore)) }
		var err error
		if c != nil {
			err = s.admitted(ctx, t, *c, adopt)
		} else {
			err = adopt(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	command, trace := "", ""
	if c != nil {
		command = c.event.ID()
		trace, _ = c.event.Extensions()[events.ExtTraceParent].(string)
	}
	a := &acceptance{tenant: desired(o, dataStore, before, beforeGeneration, trace, now)}
	a.tenant.Unplaced = missing
	if at := earliest(a.tenant.PausedUntil, a.tenant.Sleep.Until, a.tenant.Backups.Next); !at.IsZero() {
		if err := s.lookAt(ctx, t, at, now); err != nil {
			return nil, err
		}
	}
	inputs, wait := inputsOf(a.tenant, o.Generation), waitOf(o, missing, now)
	if own := t.Own(); own == nil || own.Inputs != inputs || own.Wait != wait || own.Failure != nil {
		a.outcome = &loop.Outcome{Inputs: inputs, Wait: wait, Data: a.tenant}
		a.tell(t.About(), before, command)
	}
	return a, nil
}

// tell adds to the outcome what is told of it, before being what was accepted last, nil for nothing.
func (a *acceptance) tell(about event.About, before *state.Tenant, command string) {
	if a.tenant.Deleting {
		a.outcome.Step = event.Deleting
		a.outcome.Facts = []loop.Tell{{What: event.Deleting, Data: event.IntakeDeleting{About: about}}}
		return
	}
	accepted := acceptedOf(about, &a.tenant, command)
	accepted.Resumed = before != nil && before.LeftAlone() && !a.tenant.LeftAlone()
	a.outcome.Step = event.Accepted
	a.outcome.Facts = []loop.Tell{{What: event.Accepted, Data: accepted}}
}

// noteAccepted notes, once the outcome is written, what the tenant's spec is now.
func (s *svc) noteAccepted(t *loop.Turn, a *acceptance) {
	if a.outcome == nil {
		return
	}
	t.Tenant = &a.tenant
	if a.tenant.Spec.DataStore != "" && a.tenant.PausedUntil.IsZero() {
		s.index.expect(t.Key, a.tenant.Seen)
	}
}

// writeSpec writes the spec for an object and tells, if it says anything new.
func (s *svc) writeSpec(ctx context.Context, t *loop.Turn, o *v1alpha1.TenantControlPlane, now time.Time) error {
	a, err := s.accept(ctx, t, o, nil, now)
	if err != nil || a.outcome == nil {
		return err
	}
	if err := t.Done(ctx, *a.outcome); err != nil {
		return err
	}
	s.noteAccepted(t, a)
	return nil
}

// waitOf is what a tenant waits for: missing says which DataStore, empty for none.
func waitOf(o *v1alpha1.TenantControlPlane, missing string, now time.Time) state.Wait {
	if missing != "" {
		return state.Wait{On: kube.DataStores.Kind, Reason: reason.DataStoreNotChosen, Text: missing}
	}
	if _, _, bad := name.Paused(o.Annotations, now); bad != nil {
		text := "an end of the pause that can be read: " + bad.Error()
		return state.Wait{On: kube.TenantControlPlanes.Kind, Reason: reason.PauseUnreadable, Text: text}
	}
	if _, bad := scheduleOf(o.Annotations); bad != nil {
		text := "a schedule of sleep that can be read" + unreadable(bad)
		return state.Wait{On: kube.TenantControlPlanes.Kind, Reason: reason.ScheduleUnreadable, Text: text}
	}
	if _, bad := backupsOf(o.Annotations); bad != nil {
		text := "annotations of backups that can be read" + unreadable(bad)
		return state.Wait{On: kube.TenantControlPlanes.Kind, Reason: reason.ScheduleUnreadable, Text: text}
	}
	if _, bad := quotaOf(o.Annotations); bad != nil {
		return state.Wait{On: kube.TenantControlPlanes.Kind, Reason: reason.QuotaUnreadable, Text: "annotations of a quota that can be read" + unreadable(bad)}
	}
	if _, bad := inPlaceOf(o, nil); bad != nil {
		return state.Wait{On: kube.TenantControlPlanes.Kind, Reason: reason.RestoreUnreadable, Text: "an annotation of a restore in place that can be followed" + unreadable(bad)}
	}
	return state.Wait{}
}

// acceptedOf is what is told of a tenant that was accepted.
func acceptedOf(about event.About, tenant *state.Tenant, command string) event.IntakeAccepted {
	return event.IntakeAccepted{
		About: about, Version: tenant.Spec.Kubernetes.Version, DataStore: tenant.Spec.DataStore,
		Replicas: tenant.Spec.ControlPlane.Deployment.Replicas, Paused: tenant.LeftAlone(), Command: command,
	}
}

// lookAt wakes intake when a pause ends, sleep begins or ends, or a backup is due. It is set at every look, since the timer may have been lost with NATS.
func (s *svc) lookAt(ctx context.Context, t *loop.Turn, at, now time.Time) error {
	if latest := now.Add(longestTimer); at.After(latest) {
		at = latest
	}
	return t.At(ctx, at)
}

// inputsOf is the hash of what others would notice. Setup is what one of them said itself.
func inputsOf(tenant state.Tenant, generation int64) string {
	tenant.AcceptedAt, tenant.TraceParent, tenant.Setup, tenant.Overridden = time.Time{}, "", state.Account{}, nil
	data, err := json.Marshal(tenant)
	if err != nil {
		panic("a tenant's spec is plain data: " + err.Error())
	}
	return events.ID(strconv.FormatInt(generation, 10), string(data))
}
