package capi

// The status of a control plane, in the terms of both versions of Cluster API's contract: what of it the tenant's status says, and the
// conditions, which are the steps of a turn.

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// phaseOf is the phase of a tenant.
func phaseOf(t *v1alpha1.TenantControlPlane) v1alpha1.KubernetesVersionStatus {
	if t == nil || t.Status.Kubernetes.Version.Status == nil {
		return v1alpha1.VersionProvisioning
	}
	return *t.Status.Kubernetes.Version.Status
}

// usable reports whether a tenant's API can be used. Where only Kamaji says so, which has no condition for it, the phase tells.
func usable(t *v1alpha1.TenantControlPlane) bool {
	phase := phaseOf(t)
	return phase == v1alpha1.VersionReady || phase == v1alpha1.VersionUpgrading ||
		t != nil && meta.IsStatusConditionTrue(t.Status.Conditions, reason.Ready)
}

// statusOf is the status of a control plane whose tenant is as it is, with the conditions of a turn. initialized is kept: what was
// initialized once stays so.
func statusOf(
	o *controlplane.KamajiControlPlane, t *v1alpha1.TenantControlPlane, initialized bool, conditions []metav1.Condition,
) controlplane.KamajiControlPlaneStatus {
	yes, ready := true, initialized && usable(t)
	s := controlplane.KamajiControlPlaneStatus{
		Initialization: controlplane.Initialization{ControlPlaneInitialized: &initialized}, Initialized: &initialized, Ready: &ready,
		ExternalManagedControlPlane: &yes, ObservedGeneration: o.Generation, Conditions: conditions,
	}
	zero := int32(0)
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas = &zero, &zero, &zero
	s.UpToDateReplicas, s.UpdatedReplicas, s.UnavailableReplicas = &zero, &zero, &zero
	if t == nil {
		return s
	}
	if d := t.Status.Kubernetes.Deployment; d != nil {
		unavailable := d.UnavailableReplicas
		s.Selector = d.Selector
		s.Replicas, s.ReadyReplicas, s.AvailableReplicas = &d.Replicas, &d.ReadyReplicas, &d.AvailableReplicas
		s.UpToDateReplicas, s.UpdatedReplicas, s.UnavailableReplicas = &d.UpdatedReplicas, &d.UpdatedReplicas, &unavailable
	}
	if initialized {
		s.Version, s.Versions = t.Status.Kubernetes.Version.Version, versionsOf(t)
	}
	return s
}

// versionsOf are the versions that a tenant's pods run, the lowest first: during an upgrade that of before, which its status names until the
// last pod is replaced, and the one that is asked for.
func versionsOf(t *v1alpha1.TenantControlPlane) []controlplane.RunningVersion {
	runs := t.Status.Kubernetes.Version.Version
	if runs == "" {
		return nil
	}
	all := []controlplane.RunningVersion{{Version: runs}}
	d := t.Status.Kubernetes.Deployment
	if d == nil {
		return all
	}
	next := t.Spec.Kubernetes.Version
	if phaseOf(t) != v1alpha1.VersionUpgrading || next == runs || d.UpdatedReplicas == 0 {
		all[0].Replicas = some(d.Replicas, d.Replicas > 0)
		return all
	}
	former := d.Replicas - d.UpdatedReplicas
	all[0].Replicas = some(former, former > 0)
	return append(all, controlplane.RunningVersion{Version: next, Replicas: some(d.UpdatedReplicas, true)})
}

// report is the conditions of a turn, as far as it came.
type report struct {
	generation int64
	now        time.Time
	conditions []metav1.Condition
}

// reportOn begins with the conditions that an object has.
func reportOn(o *controlplane.KamajiControlPlane, now time.Time) *report {
	return &report{generation: o.Generation, now: now, conditions: slices.Clone(o.Status.Conditions)}
}

// set notes a condition.
func (r *report) set(condition string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&r.conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message, ObservedGeneration: r.generation, LastTransitionTime: metav1.NewTime(r.now),
	})
}

// drop takes a condition away.
func (r *report) drop(condition string) { meta.RemoveStatusCondition(&r.conditions, condition) }

// sorted are the conditions in an order that doesn't change.
func (r *report) sorted() []metav1.Condition {
	slices.SortFunc(r.conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return r.conditions
}

// write writes a status, if the object has another.
func (s *svc) write(ctx context.Context, o *controlplane.KamajiControlPlane, want controlplane.KamajiControlPlaneStatus) error {
	if equality.Semantic.DeepEqual(o.Status, want) {
		return nil
	}
	return s.kube.ApplyStatus(ctx, kube.KamajiControlPlanes, &o.ObjectMeta, want)
}
