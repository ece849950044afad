package capi

// The end of a control plane. Cluster API waits until its object is gone before it lets the infrastructure go, so the finalizer stays on it
// until the tenant is gone, with its data.

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// holders are the finalizers that hold a control plane for its tenant's sake: Stoker's, and that of Kamaji's provider, whose work it goes on
// with.
var holders = []string{name.FinalizerControlPlane, name.FinalizerExternalTenant}

// holds reports whether the control plane is held for its tenant's sake.
func (w *work) holds() bool {
	return slices.ContainsFunc(w.o.Finalizers, func(f string) bool { return slices.Contains(holders, f) })
}

// hold puts the finalizer on the control plane, before there is a tenant, and records where that is, if in another cluster. One in the
// management cluster clusterctl is kept from moving until that is ready for it: it would delete the tenant, and its data.
func (w *work) hold(ctx context.Context) error {
	meta, annotations := map[string]any{}, map[string]any{}
	if w.placing != nil {
		text, err := json.Marshal(w.placing) //nolint:gosec // the name of a Secret
		if err != nil {
			return err
		}
		if w.o.Annotations[name.AnnotationExternalTenant] != string(text) {
			annotations[name.AnnotationExternalTenant] = string(text)
		}
	}
	switch _, blocked := w.o.Annotations[name.AnnotationBlockMove]; {
	case w.placing == nil && !blocked:
		annotations[name.AnnotationBlockMove] = ""
	case w.placing != nil && blocked:
		annotations[name.AnnotationBlockMove] = nil
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if held := append(w.unheld(), name.FinalizerControlPlane); !sameSet(held, w.o.Finalizers) {
		meta["finalizers"] = held
	}
	return w.patchMetadata(ctx, w.o, meta)
}

// unheld are the control plane's finalizers but those for its tenant's sake.
func (w *work) unheld() []string {
	return slices.DeleteFunc(slices.Clone(w.o.Finalizers), func(f string) bool { return slices.Contains(holders, f) })
}

func sameSet(a, b []string) bool { return len(a) == len(b) && sets.New(a...).Equal(sets.New(b...)) }

// release lets the control plane go.
func (w *work) release(ctx context.Context) error {
	if !w.holds() {
		return nil
	}
	return w.patchMetadata(ctx, w.o, map[string]any{"finalizers": w.unheld()})
}

// leftBehind reports whether the tenant of a control plane that is being deleted stays: kubectl delete --cascade=orphan, or clusterctl has
// moved the control plane.
func (w *work) leftBehind() bool {
	_, moved := w.o.Annotations[name.AnnotationDeleteForMove]
	return moved || slices.Contains(w.o.Finalizers, metav1.FinalizerOrphanDependents)
}

// end deletes the tenant of a control plane that is being deleted, and lets that go once it is gone. The watch tells when that is.
func (w *work) end(ctx context.Context) error {
	if w.tenant == nil {
		return w.release(ctx)
	}
	message := "the tenant is being deleted, with its data"
	if w.visit != nil {
		message += ": " + w.placing.String()
		// One that another provider made isn't among what is watched.
		w.turn.Alarm(loop.HeldAgain(w.now.Sub(w.o.DeletionTimestamp.Time)), loop.Wake{Kind: wakeSeen})
	}
	w.set(controlplane.ConditionReady, false, controlplane.ReasonDeleting, message)
	w.set(controlplane.ConditionAvailable, false, controlplane.ReasonDeleting, message)
	if err := w.tell(ctx); err != nil || w.tenant.DeletionTimestamp != nil {
		return err
	}
	err := w.ask(ctx, func(ctx context.Context) error {
		_, err := w.client.Delete(ctx, kube.TenantControlPlanes, w.at.Namespace, w.at.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &w.tenant.UID},
		})
		return err
	})
	var held *heldError
	if err = w.refused(stale(err)); errors.As(err, &held) {
		return w.unreached(ctx, err)
	}
	return err
}

// patchMetadata changes the metadata of a control plane that was read; nothing is sent where there is nothing to change.
func (s *svc) patchMetadata(ctx context.Context, o *controlplane.KamajiControlPlane, meta map[string]any) error {
	if len(meta) == 0 {
		return nil
	}
	meta["resourceVersion"], meta["uid"] = o.ResourceVersion, o.UID // finalizers are replaced as a list
	return found(stale(s.kube.MergePatch(ctx, kube.KamajiControlPlanes, o.Namespace, o.Name, map[string]any{"metadata": meta}, o)))
}
