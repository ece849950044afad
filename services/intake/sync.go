package intake

// Wakes on a command that was applied and on the watch of TenantControlPlanes. Makes the tenant's bucket and its spec,
// every default resolved. Tells intake.accepted, intake.deleting and, at the end, intake.removed.

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
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
func (s *intake) sync(ctx context.Context, t *events.Turn) error {
	o, err := s.get(ctx, t.Key)
	if err != nil {
		return err
	}
	if o == nil || o.DeletionTimestamp != nil && !slices.Contains(o.Finalizers, name.FinalizerTenant) {
		// Gone, or kept only by a finalizer of somebody else's: ours is off because nothing is left, or by hand.
		return s.vanished(ctx, t)
	}
	if !adopted(&o.ObjectMeta) && o.DeletionTimestamp == nil {
		if err := s.adopt(ctx, t.Key, o); err != nil {
			return err
		}
	}
	return s.accept(ctx, t, o, "", "")
}

// vanished handles an object that is no more. If it went without our leave (its finalizer was removed by hand), what was
// made for it is taken down all the same.
func (s *intake) vanished(ctx context.Context, t *events.Turn) error {
	if t.Tenant == nil || t.Tenant.Deleting {
		return nil
	}
	tenant := *t.Tenant
	tenant.Deleting, tenant.Seen = true, gone
	return t.Done(ctx, events.Outcome{
		Step: event.Deleting, Inputs: gone, Data: tenant,
		Facts: []events.Tell{{What: event.Deleting, Data: event.IntakeDeleting{About: t.About()}}},
	})
}

// adopted reports whether an object carries what intake adds to it: the partition and the finalizer.
func adopted(o *metav1.ObjectMeta) bool {
	return o.Labels[name.LabelPartition] == partition(o.Namespace, o.Name) && slices.Contains(o.Finalizers, name.FinalizerTenant)
}

func partition(namespace, n string) string { return strconv.Itoa(name.Partition(namespace, n)) }

func generation(o *metav1.ObjectMeta) string { return strconv.FormatInt(o.Generation, 10) }

// adopt adds partition and finalizer to an object that was not written by a command.
func (s *intake) adopt(ctx context.Context, key events.Key, o *v1alpha1.TenantControlPlane) error {
	finalizers := o.Finalizers
	if !slices.Contains(finalizers, name.FinalizerTenant) {
		finalizers = append(slices.Clone(finalizers), name.FinalizerTenant)
	}
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": o.ResourceVersion,
		"finalizers":      finalizers,
		"labels":          map[string]string{name.LabelPartition: partition(key.Namespace, key.Name)},
	}}
	return s.kube.MergePatch(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, patch, o)
}

// specAnnotations are the annotations that change what services do.
func specAnnotations(o *metav1.ObjectMeta) map[string]string {
	kept := map[string]string{}
	for _, k := range []string{
		name.AnnotationPaused, name.AnnotationPausedUntil, name.AnnotationKubeconfigSecretKey,
		name.AnnotationMigrationTimeout, name.AnnotationCleanupPriorMigration,
	} {
		if v, ok := o.Annotations[k]; ok {
			kept[k] = v
		}
	}
	return kept
}

// desired is the spec of a tenant: a pure function of its object, the default DataStore and what was accepted before.
func desired(o *v1alpha1.TenantControlPlane, dataStore string, before *state.Tenant, beforeGeneration int64, trace string, now time.Time) state.Tenant {
	effective := o.DeepCopy()
	if effective.Spec.DataStore == "" {
		// Assigned once: what the status says wins over a default that changed meanwhile.
		effective.Spec.DataStore = effective.Status.Storage.DataStoreName
	}
	if effective.Spec.DataStore == "" && before != nil {
		effective.Spec.DataStore = before.Spec.DataStore
	}
	if effective.Spec.DataStore == "" {
		effective.Spec.DataStore = dataStore
	}
	v1alpha1.Default(effective)
	_, paused := o.Annotations[name.AnnotationPaused]
	tenant := state.Tenant{
		Namespace: o.Namespace, Name: o.Name, Annotations: specAnnotations(&o.ObjectMeta), AcceptedAt: now.UTC(),
		Deleting: o.DeletionTimestamp != nil, Paused: paused, Seen: fingerprint(&o.ObjectMeta), TraceParent: trace, Spec: effective.Spec,
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
func (s *intake) accept(ctx context.Context, t *events.Turn, o *v1alpha1.TenantControlPlane, command, trace string) error {
	if err := t.Adopt(ctx, string(o.UID), o.Generation); err != nil {
		return err
	}
	before, beforeGeneration := t.Tenant, int64(0)
	if own := t.Own(); own != nil {
		beforeGeneration = own.Generation
	}
	tenant := desired(o, s.dataStore, before, beforeGeneration, trace, time.Now())
	inputs := inputsOf(tenant, o.Generation)
	if own := t.Own(); own != nil && own.Inputs == inputs && own.Failure == nil {
		return nil
	}
	out := events.Outcome{Step: event.Accepted, Inputs: inputs, Data: tenant}
	if tenant.Deleting {
		out.Step = event.Deleting
		out.Facts = []events.Tell{{What: event.Deleting, Data: event.IntakeDeleting{About: t.About()}}}
	} else {
		out.Facts = []events.Tell{{What: event.Accepted, Data: event.IntakeAccepted{
			About: t.About(), Version: tenant.Spec.Kubernetes.Version, DataStore: tenant.Spec.DataStore, Command: command,
		}}}
	}
	if err := t.Done(ctx, out); err != nil {
		return err
	}
	t.Tenant = &tenant
	return nil
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
func (s *intake) finish(ctx context.Context, t *events.Turn, e events.Event) error {
	var done event.Removals
	if err := json.Unmarshal(e.Data(), &done); err != nil {
		return &events.Permanent{Reason: "InvalidEvent", Message: "certs.removed holds no removals", Err: err}
	}
	if t.UID != "" && done.UID != t.UID {
		return nil // about an earlier tenant of that name
	}
	o, err := s.get(ctx, t.Key)
	if err != nil {
		return err
	}
	if o != nil && string(o.UID) == done.UID {
		if o.DeletionTimestamp == nil {
			return nil
		}
		if slices.Contains(o.Finalizers, name.FinalizerTenant) {
			// Tested on what it changes, not on the object's version, which every word in its status changes.
			at := "/metadata/finalizers/" + strconv.Itoa(slices.Index(o.Finalizers, name.FinalizerTenant))
			err := s.kube.JSONPatch(ctx, kube.TenantControlPlanes, t.Key.Namespace, t.Key.Name, []map[string]any{
				{"op": "test", "path": "/metadata/uid", "value": done.UID},
				{"op": "test", "path": at, "value": name.FinalizerTenant},
				{"op": "remove", "path": at},
			})
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
	removed := maps.Clone(done.Removed)
	if removed == nil {
		removed = map[string]int{}
	}
	removed["intake/TenantControlPlane"], removed["intake/Bucket"] = 1, 1
	about := event.About{Namespace: t.Key.Namespace, Name: t.Key.Name, UID: done.UID, Generation: done.Generation}
	t.Tenant, t.Reasons = nil, nil
	return s.bus.Tell(ctx, t.Key, done.Generation, events.ID(done.UID, "intake", event.Removed), event.Removed,
		event.Removals{About: about, Removed: removed, Left: done.Left})
}
