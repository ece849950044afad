package capi

// The end of a control plane. Cluster API waits until its object is gone before it lets the infrastructure go, so the finalizer stays on it
// until the tenant is gone, with its data.

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// hold puts the finalizer on a control plane, before there is a tenant, and keeps clusterctl from moving it: that would delete the control
// plane here, and with it the tenant, which isn't among what it moves.
func (s *svc) hold(ctx context.Context, o *controlplane.KamajiControlPlane) error {
	meta := map[string]any{}
	if !slices.Contains(o.Finalizers, name.FinalizerControlPlane) {
		meta["finalizers"] = append(slices.Clone(o.Finalizers), name.FinalizerControlPlane)
	}
	if _, blocked := o.Annotations[name.AnnotationBlockMove]; !blocked {
		meta["annotations"] = map[string]any{name.AnnotationBlockMove: ""}
	}
	return s.patchMetadata(ctx, o, meta)
}

// end deletes the tenant of a control plane that is being deleted, and lets that go once it is gone. The watch tells when that is. Where the
// tenant is to be left behind (kubectl delete --cascade=orphan), it is.
func (w *work) end(ctx context.Context) error {
	at := slices.Index(w.o.Finalizers, name.FinalizerControlPlane)
	if at < 0 {
		return nil
	}
	if w.tenant == nil || slices.Contains(w.o.Finalizers, metav1.FinalizerOrphanDependents) {
		return w.patchMetadata(ctx, w.o, map[string]any{"finalizers": slices.Delete(slices.Clone(w.o.Finalizers), at, at+1)})
	}
	const message = "the tenant is being deleted, with its data"
	w.set(controlplane.ConditionReady, false, controlplane.ReasonDeleting, message)
	w.set(controlplane.ConditionAvailable, false, controlplane.ReasonDeleting, message)
	if err := w.tell(ctx); err != nil || w.tenant.DeletionTimestamp != nil {
		return err
	}
	_, err := w.kube.Delete(ctx, kube.TenantControlPlanes, w.o.Namespace, w.o.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &w.tenant.UID},
	})
	return stale(err)
}

// patchMetadata changes the metadata of a control plane that was read; nothing is sent where there is nothing to change.
func (s *svc) patchMetadata(ctx context.Context, o *controlplane.KamajiControlPlane, meta map[string]any) error {
	if len(meta) == 0 {
		return nil
	}
	meta["resourceVersion"], meta["uid"] = o.ResourceVersion, o.UID // finalizers are replaced as a list
	return found(stale(s.kube.MergePatch(ctx, kube.KamajiControlPlanes, o.Namespace, o.Name, map[string]any{"metadata": meta}, o)))
}
