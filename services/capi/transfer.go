package capi

// clusterctl move: the objects of a Cluster are made anew in another management cluster, and deleted here at once. A control plane that says so
// has its tenant be ready for that whenever its Cluster is paused, which is how a move begins; clusterctl waits for it, by an annotation
// that keeps it from moving what has it.

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// transfer lets another management cluster take over the tenant of a control plane that is paused, if that is wanted, and the control plane
// then be moved. It returns what is to be said of it; empty for nothing. The tenant, the fact that its data are passed on, and that they
// can't be, wake the next turn.
func (w *work) transfer(ctx context.Context) (said string, err error) {
	if w.o.Annotations[name.AnnotationTransferWhenPaused] != "true" || w.o.DeletionTimestamp != nil {
		return "", nil
	}
	if elsewhere, err := w.placed(w.o); elsewhere != nil || err != nil {
		return "", nil //nolint:nilerr // it stays where it is; what is wrong with the reference is said when the pause is over
	}
	w.client, w.at = w.kube, types.NamespacedName{Namespace: w.o.Namespace, Name: w.o.Name}
	if err := w.find(ctx); err != nil {
		return "", err
	}
	if w.tenant == nil {
		return "", w.unblock(ctx)
	}
	t, own := w.turn, state.Datastore{}
	is, err := t.Read(ctx, name.ServiceDatastore, &own)
	if err != nil || t.Tenant == nil || is == nil || t.UID != string(w.tenant.UID) {
		return "its tenant isn't known yet to be in a DataStore", err
	}
	asked, transferring := w.tenant.Annotations[name.AnnotationTransfer]
	if !transferring {
		if why := own.Untransferable(t.Tenant); why != "" {
			return "its tenant can't be moved to another management cluster now: " + why, nil
		}
		asked = time.Now().UTC().Format(time.RFC3339Nano)
		if err := w.annotateTenant(ctx, asked); err != nil {
			return "", err
		}
	}
	if own.PassedOn != events.ID(asked) {
		said = "its tenant is made ready to be moved to another management cluster"
		if is.Failure != nil {
			said += "; " + name.ServiceDatastore + ": " + is.Failure.Message
		}
		return said, nil
	}
	return "its tenant is ready to be moved to another management cluster", w.unblock(ctx)
}

// unblock lets clusterctl move the control plane.
func (w *work) unblock(ctx context.Context) error {
	if _, blocked := w.o.Annotations[name.AnnotationBlockMove]; !blocked {
		return nil
	}
	return w.patchMetadata(ctx, w.o, map[string]any{"annotations": map[string]any{name.AnnotationBlockMove: nil}})
}

// stays ends, for a control plane that isn't paused, that another management cluster may take its tenant over: a move that was given up, or
// that has led here.
func (w *work) stays(ctx context.Context) error {
	if w.visit != nil || w.tenant == nil {
		return nil
	}
	if _, transferring := w.tenant.Annotations[name.AnnotationTransfer]; !transferring {
		return nil
	}
	return w.annotateTenant(ctx, nil)
}

// annotateTenant sets the annotation that lets another management cluster take the tenant over, or, with nil, takes it off.
func (w *work) annotateTenant(ctx context.Context, value any) error {
	meta := map[string]any{
		"uid": w.tenant.UID, "resourceVersion": w.tenant.ResourceVersion, "annotations": map[string]any{name.AnnotationTransfer: value},
	}
	err := w.kube.MergePatch(ctx, kube.TenantControlPlanes, w.at.Namespace, w.at.Name, map[string]any{"metadata": meta}, w.tenant)
	return stale(err)
}
