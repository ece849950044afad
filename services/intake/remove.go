package intake

// Wakes on the watch of TenantControlPlanes and on certs.removed, the last before intake in the order of a deletion
// (event.RemovalOrder). Makes so that finalizer, bucket and timers of a tenant are gone. Tells intake.deleting for an object that went by
// itself, intake.removed, and intake.released for one that is another installation's.

import (
	"context"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// release lets go of a tenant that is another installation's now: bucket and timers go, what was made for it stays as it
// is, with the finalizer, for the other one to work on.
func (s *svc) release(ctx context.Context, t *loop.Turn) error {
	own := t.Own()
	if own == nil {
		return nil
	}
	if err := s.bus.Forget(ctx, t.Key); err != nil {
		return err
	}
	about := t.About()
	t.Tenant, t.Wakes = nil, nil // what was read is newer than what woke
	// The others are told so that they let go of what they hold in memory; portals, that no more is to come.
	id := events.ID(about.UID, event.Released, own.UpdatedAt.Format(time.RFC3339Nano))
	return s.bus.Tell(ctx, t.Key, about.Generation, id, event.Released, event.IntakeReleased{About: about})
}

// vanished handles an object that is no more. If it went without our leave (its finalizer was removed by hand), what was
// made for it is taken down all the same, also if it was paused: nobody can end the pause any more. The data of one that another management
// cluster takes over aren't its own any more.
func (s *svc) vanished(ctx context.Context, t *loop.Turn) error {
	if t.Tenant == nil || t.Tenant.Deleting && !t.Tenant.LeftAlone() {
		return nil
	}
	tenant := *t.Tenant
	tenant.Deleting, tenant.Seen = true, seenGone
	tenant.Paused, tenant.PausedUntil, tenant.Transfer = false, time.Time{}, ""
	return t.Done(ctx, loop.Outcome{
		Step: event.Deleting, Inputs: seenGone, Data: tenant,
		Facts: []loop.Tell{{What: event.Deleting, Data: event.IntakeDeleting{About: t.About()}}},
	})
}

// finish ends a deletion once every service has removed what it made: the object's finalizer, then timers and bucket, so
// that a crash in between finds the object gone and only forgets. It tells what was removed in all.
func (s *svc) finish(ctx context.Context, t *loop.Turn) error {
	done, _, err := t.RemovedBefore(ctx)
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
		if goesOn, err := s.letObjectGo(ctx, t, o); err != nil || !goesOn {
			return err
		}
	}
	if t.UID != "" {
		if err := s.bus.Forget(ctx, t.Key); err != nil {
			return err
		}
	}
	t.Tenant = nil // and the wakes stay: they may be of an object that was made again under this name
	removals := done.With(name.ServiceIntake, map[string]int{kube.TenantControlPlanes.Kind: 1, "Bucket": 1})
	removals.About = event.About{Namespace: t.Key.Namespace, Name: t.Key.Name, UID: done.UID, Generation: done.Generation}
	return s.bus.Tell(ctx, t.Key, done.Generation, events.ID(done.UID, name.ServiceIntake, event.Removed), event.Removed, removals)
}

// letObjectGo takes the finalizer off the object of a tenant of which nothing is left. It returns false when the deletion doesn't go on
// now.
func (s *svc) letObjectGo(ctx context.Context, t *loop.Turn, o *v1alpha1.TenantControlPlane) (bool, error) {
	if o.DeletionTimestamp == nil {
		return false, nil
	}
	if paused, _, _ := name.Paused(o.Annotations, time.Now()); paused || transferOf(o, nil) != "" {
		// The state must know of the pause, so that its end is told and the services say again that they are done.
		return false, s.writeSpec(ctx, t, o, time.Now())
	}
	return true, s.unhold(ctx, o, name.FinalizerSoot, name.FinalizerTenant)
}

// unhold takes finalizers off a tenant's object, in one write, if it has any of them.
func (s *svc) unhold(ctx context.Context, o *v1alpha1.TenantControlPlane, finalizers ...string) error {
	var patch []map[string]any
	left := slices.Clone(o.Finalizers)
	for _, f := range finalizers {
		if i := slices.Index(left, f); i >= 0 {
			patch, left = append(patch, withoutFinalizer(string(o.UID), f, i)...), slices.Delete(left, i, i+1)
		}
	}
	if len(patch) == 0 {
		return nil
	}
	err := s.kube.JSONPatch(ctx, kube.TenantControlPlanes, o.Namespace, o.Name, patch, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
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
