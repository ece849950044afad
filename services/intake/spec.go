package intake

// Wakes on a command that was applied and on the watch of TenantControlPlanes. Makes the tenant's bucket and its spec,
// every default resolved. Tells intake.accepted, intake.deleting and, at the end, intake.removed.

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
func (s *intake) get(ctx context.Context, key events.Key) (*v1alpha1.TenantControlPlane, error) {
	o := &v1alpha1.TenantControlPlane{}
	err := s.kube.Get(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// sync brings the spec in line with the object as it is now.
func (s *intake) sync(ctx context.Context, t *loop.Turn, now time.Time) error {
	o, err := s.get(ctx, t.Key)
	if err != nil {
		return err
	}
	if o != nil && !s.kube.InScope(kube.TenantControlPlanes, o) {
		return s.release(ctx, t)
	}
	if o == nil || o.DeletionTimestamp != nil && !slices.Contains(o.Finalizers, name.FinalizerTenant) {
		// Gone, or kept only by a finalizer of somebody else's: ours is off because nothing is left, or by hand.
		return s.vanished(ctx, t)
	}
	return s.acceptAt(ctx, t, o, "", "", now)
}

// release lets go of a tenant that is another installation's now: bucket and timers go, what was made for it stays as it
// is, with the finalizer, for the other one to work on.
func (s *intake) release(ctx context.Context, t *loop.Turn) error {
	own := t.Own()
	if own == nil {
		return nil
	}
	if err := s.bus.Forget(ctx, t.Key); err != nil {
		return err
	}
	about := t.About()
	t.Tenant, t.Wakes = nil, nil
	// The others are told so that they let go of what they hold in memory; portals, that no more is to come.
	id := events.ID(about.UID, event.Released, own.UpdatedAt.Format(time.RFC3339Nano))
	return s.bus.Tell(ctx, t.Key, about.Generation, id, event.Released, event.IntakeReleased{About: about})
}

// vanished handles an object that is no more. If it went without our leave (its finalizer was removed by hand), what was
// made for it is taken down all the same, also if it was paused: nobody can end the pause any more.
func (s *intake) vanished(ctx context.Context, t *loop.Turn) error {
	if t.Tenant == nil || t.Tenant.Deleting && !t.Tenant.Paused {
		return nil
	}
	tenant := *t.Tenant
	tenant.Deleting, tenant.Seen = true, seenGone
	tenant.Paused, tenant.PausedUntil = false, time.Time{}
	return t.Done(ctx, loop.Outcome{
		Step: event.Deleting, Inputs: seenGone, Data: tenant,
		Facts: []loop.Tell{{What: event.Deleting, Data: event.IntakeDeleting{About: t.About()}}},
	})
}

// adopted reports whether an object carries what intake adds to it: the partition and the finalizer.
func adopted(o *metav1.ObjectMeta) bool {
	return o.Labels[name.LabelPartition] == partition(o.Namespace, o.Name) && slices.Contains(o.Finalizers, name.FinalizerTenant)
}

func partition(namespace, n string) string { return strconv.Itoa(name.Partition(namespace, n)) }

func generation(o *metav1.ObjectMeta) string { return strconv.FormatInt(o.Generation, 10) }

// adopt adds what intake adds to an object, unless it is there: the partition, the finalizer, and the record of its
// DataStore. A command's apply carries all of it already.
func (s *intake) adopt(ctx context.Context, o *v1alpha1.TenantControlPlane, dataStore string) error {
	labels := map[string]string{}
	if p := partition(o.Namespace, o.Name); o.Labels[name.LabelPartition] != p {
		labels[name.LabelPartition] = p
	}
	if ds := label(dataStore); ds != "" && o.Labels[name.LabelDataStore] != ds {
		labels[name.LabelDataStore] = ds
	}
	return s.add(ctx, kube.TenantControlPlanes, &o.ObjectMeta, labels, recorded(o, dataStore, nil), name.FinalizerTenant, o)
}

// recorded is what of the annotation that lists the DataStores of overrides must change, nil for nothing. A DataStore that no
// override names any more stays on it until nothing is left there, as gone says.
func recorded(o *v1alpha1.TenantControlPlane, dataStore string, gone []string) map[string]any {
	have, noted := o.Annotations[name.AnnotationDatastoreOverrides]
	stores := slices.DeleteFunc(name.Overrides(o.Annotations), func(n string) bool { return slices.Contains(gone, n) })
	for _, x := range o.Spec.DataStoreOverrides {
		if x.DataStore != dataStore {
			stores = append(stores, x.DataStore)
		}
	}
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
func (s *intake) withdrawn(ctx context.Context, t *loop.Turn, e loop.Event) error {
	var gone event.DatastoreWithdrawn
	if err := e.DataAs(&gone); err != nil {
		return &intent.Permanent{Reason: reason.InvalidFact, Message: "datastore.withdrawn can't be read", Err: err}
	}
	o, err := s.get(ctx, t.Key)
	if err != nil || o == nil || string(o.UID) != gone.UID || !s.kube.InScope(kube.TenantControlPlanes, o) {
		return err
	}
	annotations := recorded(o, record(o, cmp.Or(o.Labels[name.LabelDataStore], o.Spec.DataStore)), gone.DataStores)
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

// add adds labels, annotations and a finalizer to an object and decodes the result into out; without anything to add it does
// nothing.
func (s *intake) add(ctx context.Context, r kube.Resource, o *metav1.ObjectMeta, labels map[string]string, annotations map[string]any, finalizer string, out any) error {
	meta := map[string]any{}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if !slices.Contains(o.Finalizers, finalizer) {
		// A merge patch replaces the list, so it must be the list that was read.
		meta["finalizers"], meta["resourceVersion"] = append(slices.Clone(o.Finalizers), finalizer), o.ResourceVersion
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
		name.AnnotationPaused, name.AnnotationPausedUntil, name.AnnotationKubeconfigSecretKey,
		name.AnnotationMigrationTimeout, name.AnnotationCleanupPriorMigration, name.AnnotationDatastoreSelector,
		name.AnnotationDatastoreOverrides,
	} {
		if v, ok := o.Annotations[k]; ok {
			kept[k] = v
		}
	}
	return kept
}

// specLabels are those of the object that services may look at; the partition is of the bookkeeping.
func specLabels(o *metav1.ObjectMeta) map[string]string {
	kept := maps.Clone(o.Labels)
	delete(kept, name.LabelPartition)
	return kept
}

// desired is the spec of a tenant: a pure function of its object, its DataStore and what was accepted before.
func desired(o *v1alpha1.TenantControlPlane, dataStore string, before *state.Tenant, beforeGeneration int64, trace string, now time.Time) state.Tenant {
	effective := o.DeepCopy()
	effective.Spec.DataStore = dataStore
	v1alpha1.Default(effective)
	paused, until, _ := name.Paused(o.Annotations, now)
	tenant := state.Tenant{
		Namespace: o.Namespace, Name: o.Name, Annotations: specAnnotations(&o.ObjectMeta), Labels: specLabels(&o.ObjectMeta),
		AcceptedAt: now.UTC(), Deleting: o.DeletionTimestamp != nil, Paused: paused, PausedUntil: until,
		Seen: fingerprint(&o.ObjectMeta), TraceParent: trace, Spec: effective.Spec,
	}
	if before != nil && beforeGeneration == o.Generation {
		tenant.AcceptedAt = before.AcceptedAt
		if trace == "" {
			tenant.TraceParent = before.TraceParent
		}
	}
	return tenant
}

// accept writes the spec for an object and tells, if it says anything new.
func (s *intake) accept(ctx context.Context, t *loop.Turn, o *v1alpha1.TenantControlPlane, command, trace string) error {
	return s.acceptAt(ctx, t, o, command, trace, time.Now())
}

func (s *intake) acceptAt(ctx context.Context, t *loop.Turn, o *v1alpha1.TenantControlPlane, command, trace string, now time.Time) error {
	if err := t.Adopt(ctx, string(o.UID), o.Generation); err != nil {
		return err
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
				return err
			}
			if missing != "" && s.index.promised() {
				t.Alarm(givenFor+time.Second, loop.Wake{Kind: wakeDataStores}) // somebody may not take his
			}
		}
		if err := s.adopt(ctx, o, record(o, dataStore)); err != nil {
			return err
		}
	}
	tenant := desired(o, dataStore, before, beforeGeneration, trace, now)
	tenant.Unplaced = missing
	if !tenant.PausedUntil.IsZero() {
		if err := s.endPause(ctx, t, tenant.PausedUntil, now); err != nil {
			return err
		}
	}
	inputs, wait := inputsOf(tenant, o.Generation), waitOf(o, missing, now)
	if own := t.Own(); own != nil && own.Inputs == inputs && own.Wait == wait && own.Failure == nil {
		return nil
	}
	out := loop.Outcome{Step: event.Accepted, Inputs: inputs, Wait: wait, Data: tenant}
	if tenant.Deleting {
		out.Step = event.Deleting
		out.Facts = []loop.Tell{{What: event.Deleting, Data: event.IntakeDeleting{About: t.About()}}}
	} else {
		accepted := acceptedOf(t.About(), &tenant, command)
		accepted.Resumed = before != nil && before.Paused && !tenant.Paused
		out.Facts = []loop.Tell{{What: event.Accepted, Data: accepted}}
	}
	if err := t.Done(ctx, out); err != nil {
		return err
	}
	t.Tenant = &tenant
	if tenant.Spec.DataStore != "" && tenant.PausedUntil.IsZero() {
		s.index.expect(t.Key, tenant.Seen)
	}
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
	return state.Wait{}
}

// acceptedOf is what is told of a tenant that was accepted.
func acceptedOf(about event.About, tenant *state.Tenant, command string) event.IntakeAccepted {
	return event.IntakeAccepted{
		About: about, Version: tenant.Spec.Kubernetes.Version, DataStore: tenant.Spec.DataStore,
		Replicas: tenant.Spec.ControlPlane.Deployment.Replicas, Paused: tenant.Paused, Command: command,
	}
}

// longestTimer is below the age at which the stream drops timers; a pause that lasts longer is looked at in between.
const longestTimer = 14 * 24 * time.Hour

// endPause wakes intake when a pause ends. It is set at every look, since the timer may have been lost with NATS.
func (s *intake) endPause(ctx context.Context, t *loop.Turn, until, now time.Time) error {
	if latest := now.Add(longestTimer); until.After(latest) {
		until = latest
	}
	return t.At(ctx, until)
}

// inputsOf is the hash of what others would notice.
func inputsOf(tenant state.Tenant, generation int64) string {
	tenant.AcceptedAt, tenant.TraceParent = time.Time{}, ""
	data, err := json.Marshal(tenant)
	if err != nil {
		panic("a tenant's spec is plain data: " + err.Error())
	}
	return events.ID(strconv.FormatInt(generation, 10), string(data))
}

// finish ends a deletion once every service has removed what it made: the object's finalizer, then bucket and timers, so
// that a crash in between finds the object gone and only forgets. It tells what was removed in all.
func (s *intake) finish(ctx context.Context, t *loop.Turn) error {
	done, _, err := t.RemovedBefore()
	if err != nil || done == nil { // nil: of an earlier tenant of that name
		return err
	}
	o, err := s.get(ctx, t.Key)
	if err != nil {
		return err
	}
	if o != nil && !s.kube.InScope(kube.TenantControlPlanes, o) {
		return s.release(ctx, t)
	}
	if o != nil && string(o.UID) == done.UID {
		if o.DeletionTimestamp == nil {
			return nil
		}
		if paused, _, _ := name.Paused(o.Annotations, time.Now()); paused {
			// The state must know of the pause, so that its end is told and the services say again that they are done.
			return s.accept(ctx, t, o, "", "")
		}
		if slices.Contains(o.Finalizers, name.FinalizerTenant) {
			i := slices.Index(o.Finalizers, name.FinalizerTenant)
			err := s.kube.JSONPatch(ctx, kube.TenantControlPlanes, t.Key.Namespace, t.Key.Name, withoutFinalizer(done.UID, name.FinalizerTenant, i))
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	if t.UID != "" {
		if err := s.bus.Forget(ctx, t.Key); err != nil {
			return err
		}
	}
	t.Tenant, t.Wakes = nil, nil
	removals := done.With(name.ServiceIntake, map[string]int{kube.TenantControlPlanes.Kind: 1, "Bucket": 1})
	removals.About = event.About{Namespace: t.Key.Namespace, Name: t.Key.Name, UID: done.UID, Generation: done.Generation}
	return s.bus.Tell(ctx, t.Key, done.Generation, events.ID(done.UID, name.ServiceIntake, event.Removed), event.Removed, removals)
}

// withoutFinalizer is the JSON patch that takes the i-th finalizer off an object. It is tested on what it changes, not on the
// object's version, which every word in its status changes.
func withoutFinalizer(uid, finalizer string, i int) []map[string]any {
	at := "/metadata/finalizers/" + strconv.Itoa(i)
	return []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": uid},
		{"op": "test", "path": at, "value": finalizer},
		{"op": "remove", "path": at},
	}
}
