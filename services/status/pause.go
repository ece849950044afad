package status

// The status of a paused tenant: what it was when the pause began, and that it is paused. It is written once, and again only
// when somebody changes the object meanwhile. Nothing is observed: the other services stand still, and their states may
// even be lost with NATS until the pause ends.

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// paused says that a tenant is paused, if it hasn't been said.
func (s *svc) paused(ctx context.Context, t *loop.Turn) error {
	t.NoAlarm()
	in := States{UID: t.UID, Generation: t.Generation}
	if err := t.OwnData(&in.Previous); err != nil {
		in.Previous = state.Status{} // ours to write anew
	}
	if own := t.Own(); own != nil && own.Generation == t.Generation && saysPaused(t.Tenant, in.Previous.Conditions) {
		s.metrics.note(t.Key, tenantOf(t.Tenant, v1alpha1.TenantControlPlaneStatus{}, in.Previous))
		if t.Due() {
			return s.refill(ctx, t, in.Previous)
		}
		return nil
	}
	was, err := s.object(ctx, t)
	if err != nil {
		return err
	}
	if in.Previous.Phase == "" {
		in.Previous = seed(was)
	}
	status, next := Hold(t.Tenant, in, was, time.Now())
	return s.write(ctx, t, in, status, next)
}

// Hold returns the status of a paused tenant, made from the one it had, and what status itself keeps.
func Hold(
	t *state.Tenant, in States, was v1alpha1.TenantControlPlaneStatus, now time.Time,
) (v1alpha1.TenantControlPlaneStatus, state.Status) {
	held := *was.DeepCopy()
	if held.Kubernetes.Version.Status == nil {
		held.Kubernetes.Version.Status = new(v1alpha1.VersionProvisioning)
	}
	// Nothing is in progress.
	held.Conditions = slices.DeleteFunc(held.Conditions, func(c metav1.Condition) bool {
		return c.Type == ConditionReconciling || c.Type == ConditionPaused
	})
	pause := pausedCondition(t)
	added := []metav1.Condition{pause}
	if meta.FindStatusCondition(held.Conditions, ConditionReady) == nil {
		added = []metav1.Condition{
			{Type: ConditionReady, Status: metav1.ConditionFalse, Reason: reason.Paused, Message: "paused before anything was made"}, pause,
		}
	}
	held.Conditions = append(held.Conditions, withTimes(added, was.Conditions, in.Generation, now)...)

	next := in.Previous
	next.Phase, next.Ready = PhasePaused, meta.IsStatusConditionTrue(held.Conditions, ConditionReady)
	next.Reason, next.Message = pause.Reason, pause.Message
	next.Version, next.Endpoint = held.Kubernetes.Version.Version, held.ControlPlaneEndpoint
	next.Conditions = held.Conditions
	return held, next
}

// pausedCondition says until when.
func pausedCondition(t *state.Tenant) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionPaused, Status: metav1.ConditionTrue, Reason: reason.Annotated,
		Message: "annotation " + name.AnnotationPaused + " stops all services for this object until it is removed",
	}
	switch _, forever := t.Annotations[name.AnnotationPaused]; {
	case t.Transfer != "" && !t.Paused:
		c.Reason = reason.Transferring
		if _, moved := t.Annotations[name.AnnotationDeleteForMove]; moved {
			c.Message = "clusterctl has moved this object to another management cluster, and deletes it here (annotation " + name.AnnotationDeleteForMove + ")"
			break
		}
		c.Message = "annotation " + name.AnnotationTransfer + " lets another management cluster take this object over; nothing is changed until it is removed"
	case !forever && !t.PausedUntil.IsZero():
		c.Message = "annotation " + name.AnnotationPausedUntil + " stops all services for this object until " +
			t.PausedUntil.UTC().Format(time.RFC3339)
	}
	if t.Deleting {
		c.Message += "; its deletion waits, too"
	}
	return c
}

// saysPaused reports whether conditions tell of this very pause.
func saysPaused(t *state.Tenant, conditions []metav1.Condition) bool {
	c, want := meta.FindStatusCondition(conditions, ConditionPaused), pausedCondition(t)
	return c != nil && c.Status == want.Status && c.Message == want.Message
}

// seed makes what status keeps from the status of the object: transition times outlive the loss of NATS.
func seed(was v1alpha1.TenantControlPlaneStatus) state.Status {
	prev := state.Status{Conditions: was.Conditions, ObservedGeneration: was.ObservedGeneration}
	if c := meta.FindStatusCondition(prev.Conditions, ConditionReady); c != nil && c.Status == metav1.ConditionTrue {
		prev.Ready, prev.ReadyGeneration = true, c.ObservedGeneration
	}
	return prev
}
