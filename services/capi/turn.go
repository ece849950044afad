package capi

// Wakes on a control plane, its tenant, its Cluster, that one's infrastructure, and the Secrets made of the tenant's. Makes so the tenant, the
// published endpoint, the infrastructure's, those Secrets, and the control plane's status. Tells capi.initialized.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// work is a turn of a control plane.
type work struct {
	*svc
	turn *loop.Turn
	o    *controlplane.KamajiControlPlane
	of   *cluster // nil for none
	// client reaches the API server where the tenant is, under the name at. In another cluster than the management cluster that is a visit,
	// as recorded by placing; both nil in the management cluster.
	client  *kube.Client
	at      types.NamespacedName
	visit   *visit
	placing *record
	// tenant as it was read or applied last, nil for none; foreign says that the object of its name is somebody else's.
	tenant  *v1alpha1.TenantControlPlane
	foreign bool
	own     state.CAPI
	*report
	initialized bool
	held        bool // a step can't be done now
}

// heldError is what keeps a step from being done, until something changes that is seen, or looked for after a while.
type heldError struct{ reason, message string }

func (e *heldError) Error() string { return e.message }

// waits is what isn't there yet.
func waits(message string, args ...any) error {
	return &heldError{controlplane.ReasonWaitingForTenant, fmt.Sprintf(message, args...)}
}

// cannot is what can't be as things are.
func cannot(message string, args ...any) error {
	return &heldError{controlplane.ReasonFailed, state.ClipMessage(fmt.Sprintf(message, args...))}
}

// handle is the turn of a control plane and its tenant, which have one name. Most tenants have no control plane.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
	w := &work{svc: s, turn: t, o: &controlplane.KamajiControlPlane{}}
	err := s.kube.Get(ctx, kube.KamajiControlPlanes, t.Key.Namespace, t.Key.Name, w.o)
	if apierrors.IsNotFound(err) || err == nil && !s.kube.InScope(kube.KamajiControlPlanes, w.o) {
		t.NoAlarm()
		s.externals.drop(t.Key)
		return nil
	}
	if err == nil {
		err = w.read(ctx)
	}
	if err != nil {
		return err
	}
	if by := pausedBy(w.o, w.of); by != "" {
		said, err := w.transfer(ctx)
		if err != nil {
			return err
		}
		message := "left alone by " + by
		if said != "" {
			message += "; " + said
		}
		w.set(controlplane.ConditionPaused, true, controlplane.ReasonPaused, message)
		return w.keepStatus(ctx)
	}
	w.set(controlplane.ConditionPaused, false, controlplane.ReasonNotPaused, "")
	if w.o.DeletionTimestamp != nil && (!w.holds() || w.leftBehind()) {
		return w.release(ctx)
	}
	defer w.leave()
	if done, err := w.reach(ctx); done || err != nil {
		return err
	}
	if w.o.DeletionTimestamp != nil {
		return w.end(ctx)
	}
	before := slices.Clone(w.conditions)
	failed := w.steps(ctx)
	if i := intent.Of(failed); i == intent.Reread || i == intent.HandOver {
		return failed
	}
	if w.visit != nil {
		if gone := w.visit.gone(); gone != nil { // meanwhile
			w.conditions = before
			return w.unreached(ctx, gone)
		}
	}
	w.available()
	if err := w.tell(ctx); err != nil {
		return err
	}
	if err := w.note(ctx); err != nil {
		return err
	}
	if w.held {
		t.Alarm(loop.HeldAgain(w.heldFor()), loop.Wake{Kind: wakeSeen})
	}
	return failed
}

// read reads what there is.
func (w *work) read(ctx context.Context) (err error) {
	if err := w.turn.OwnData(&w.own); err != nil {
		return err
	}
	if w.of, err = w.cluster(ctx, w.o); err != nil {
		return err
	}
	// What another provider has of the status would stay, whatever is written.
	if err := w.kube.Unmanage(ctx, kube.KamajiControlPlanes, w.o, w.o, func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "status" && f.Manager != name.FieldManagerCAPI
	}); err != nil {
		return err
	}
	was := w.o.Status.Initialization.ControlPlaneInitialized
	w.initialized, w.report = was != nil && *was, reportOn(w.o, time.Now())
	return nil
}

// steps makes the tenant and what follows from it, as far as it comes. Its error is one for which the turn is repeated.
func (w *work) steps(ctx context.Context) error {
	if w.of == nil {
		w.set(controlplane.ConditionTenantCreated, false, controlplane.ReasonWaitingForCluster, noCluster(w.o))
		return nil
	}
	if err := w.hold(ctx); err != nil {
		return err
	}
	if err := w.stays(ctx); err != nil {
		return err
	}
	if done, err := w.step(controlplane.ConditionTenantCreated, w.make(ctx)); !done {
		return err
	}
	if w.tenant.Status.ControlPlaneEndpoint == "" {
		w.set(controlplane.ConditionAddressReady, false, controlplane.ReasonWaitingForAddress, "the tenant has no endpoint yet")
		return nil
	}
	at, err := endpointOf(w.o.Spec.Network, w.tenant.Status.ControlPlaneEndpoint)
	if done, err := w.step(controlplane.ConditionAddressReady, err); !done {
		return err
	}
	if done, err := w.step(controlplane.ConditionEndpointPatched, w.publish(ctx, w.o, at)); !done {
		return err
	}
	w.generation = w.o.Generation // which that has raised
	if has := w.of.Spec.ControlPlaneEndpoint; has.Host != "" && has != at {
		w.set(controlplane.ConditionEndpointPatched, true, controlplane.ReasonSucceeded, fmt.Sprintf("spec.controlPlaneEndpoint of Cluster %s stays host %s, "+
			"port %d: Cluster API doesn't change it, and machines join there", w.of.Name, has.Host, has.Port))
	}
	var equipped error
	if w.of.Spec.InfrastructureRef.Kind == "" || w.gates[gateSkipInfrastructure] {
		w.drop(controlplane.ConditionInfrastructurePatched)
	} else {
		_, equipped = w.step(controlplane.ConditionInfrastructurePatched, w.infrastructure(ctx, at))
	}
	handed, err := w.step(controlplane.ConditionKubeadmResourcesCreated, w.hand(ctx))
	// Once its API has answered and there is a kubeconfig; whether the infrastructure is equipped is another matter: Cluster API copies the
	// endpoint only of what is initialized.
	if w.initialized = w.initialized || handed && usable(w.tenant); w.initialized {
		w.set(controlplane.ConditionInitialized, true, controlplane.ReasonSucceeded, "")
	} else {
		w.set(controlplane.ConditionInitialized, false, controlplane.ReasonWaitingForAPI, "the tenant is "+string(phaseOf(w.tenant)))
	}
	return errors.Join(equipped, err)
}

func noCluster(o *controlplane.KamajiControlPlane) string {
	if n := clusterOf(o); n != "" {
		return "there is no Cluster " + n + " whose spec.controlPlaneRef is this control plane"
	}
	return "no Cluster refers to this control plane: set spec.controlPlaneRef of one"
}

// step notes how a step went, and returns the error for which the turn is repeated.
func (w *work) step(condition string, err error) (done bool, again error) {
	var held *heldError
	switch {
	case err == nil:
		w.set(condition, true, controlplane.ReasonSucceeded, "")
		return true, nil
	case errors.As(err, &held):
		w.held = true
		w.set(condition, false, held.reason, held.message)
		return false, nil
	}
	w.set(condition, false, controlplane.ReasonFailed, err.Error())
	return false, err
}

// heldFor is for how long a step has been held.
func (w *work) heldFor() (longest time.Duration) {
	for _, c := range w.conditions {
		if c.Status == metav1.ConditionFalse && c.Type != controlplane.ConditionPaused {
			longest = max(longest, w.now.Sub(c.LastTransitionTime.Time))
		}
	}
	return longest
}

// available notes whether the tenant can be used.
func (w *work) available() {
	is, message := w.initialized && usable(w.tenant), ""
	ready, available := controlplane.ReasonSucceeded, controlplane.ReasonAvailable
	switch {
	case w.tenant == nil:
		message, ready, available = "there is no tenant yet", controlplane.ReasonWaitingForTenant, controlplane.ReasonNotAvailable
	case !is:
		message, ready, available = "the tenant is "+string(phaseOf(w.tenant)), controlplane.ReasonWaitingForTenant, controlplane.ReasonNotAvailable
	}
	w.set(controlplane.ConditionReady, is, ready, message)
	w.set(controlplane.ConditionAvailable, is, available, message)
}

// tell writes the status. Of a tenant in another cluster there is no bucket here, so that it is told before that it is initialized.
func (w *work) tell(ctx context.Context) error {
	if was := w.o.Status.Initialization.ControlPlaneInitialized; w.visit != nil && w.initialized && (was == nil || !*was) {
		about := event.About{Namespace: w.o.Namespace, Name: w.o.Name, UID: string(w.o.UID), Generation: w.o.Generation}
		if err := w.bus.Tell(ctx, w.turn.Key, w.o.Generation, events.ID(event.Initialized, string(w.o.UID)), event.Initialized,
			event.CAPIInitialized{About: about, ControlPlane: w.o.Name, Cluster: w.of.Name}); err != nil {
			return err
		}
	}
	return found(w.write(ctx, w.o, statusOf(w.o, w.tenant, w.initialized, w.sorted())))
}

// found is no error for an object that is gone by now.
func found(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// make makes the tenant as the control plane asks.
func (w *work) make(ctx context.Context) error {
	if w.foreign {
		if w.visit != nil {
			return cannot("TenantControlPlane %s is another control plane's; it is left as it is. Delete the annotation %s of this one to have one of its own made",
				w.at, name.AnnotationExternalTenant)
		}
		return cannot("TenantControlPlane %s is there and isn't this control plane's; it is left as it is. "+
			"Delete it, or give the control plane another name", w.at.Name)
	}
	want := tenantOf(w.o, w.of)
	if w.visit != nil {
		w.elsewhere(want)
	}
	asked := digest(want)
	if has := w.tenant; has != nil {
		if has.DeletionTimestamp != nil {
			return waits("the tenant of this name is being deleted, and is made anew once it is gone")
		}
		if err := w.takeOver(ctx, has); err != nil {
			return err
		}
		if w.own.Applied == asked && w.own.AppliedGeneration == has.Generation && within(has, want) {
			return nil
		}
		if w.own.Applied == asked && (w.visit != nil || w.turn.UID == string(has.UID)) {
			w.turn.Drifted(kube.TenantControlPlanes.Kind + " " + has.Name)
		}
		want.UID = has.UID
	}
	err := w.ask(ctx, func(ctx context.Context) error {
		return w.client.ApplyOnto(ctx, kube.TenantControlPlanes, want, want.UID)
	})
	if apierrors.IsInvalid(err) || w.visit != nil && apierrors.IsNotFound(err) {
		return cannot("%s", err)
	}
	if err != nil {
		return err
	}
	w.tenant, w.own.Applied, w.own.AppliedGeneration = want, asked, want.Generation
	return nil
}

// within reports whether a tenant has the labels, annotations and controller that are wanted.
func within(has, want *v1alpha1.TenantControlPlane) bool {
	all := func(has, want map[string]string) bool {
		for k, v := range want {
			if is, there := has[k]; !there || is != v {
				return false
			}
		}
		return true
	}
	is, must := metav1.GetControllerOf(has), metav1.GetControllerOf(want)
	return all(has.Labels, want.Labels) && all(has.Annotations, want.Annotations) && (must == nil || is != nil && is.UID == must.UID)
}

// elsewhere makes of the tenant that a control plane asks for the one in another cluster, where nothing owns it.
func (w *work) elsewhere(t *v1alpha1.TenantControlPlane) {
	t.Namespace, t.Name, t.OwnerReferences = w.at.Namespace, w.at.Name, nil
	t.Annotations[name.AnnotationControlPlane] = w.o.Namespace + "/" + w.o.Name
	t.Labels[name.LabelComponent] = name.ComponentCAPI
}

// digest tells a tenant that is wanted from another.
func digest(t *v1alpha1.TenantControlPlane) string {
	data, _ := json.Marshal(t) // typed objects can be encoded
	return events.ID(string(data))
}

// takeOver takes from another provider, which made a tenant for this control plane, what its field manager has of it: what the control plane
// doesn't ask for any more would stay otherwise. It is known by the reference to the control plane that it wrote; in another cluster, where
// there is none, by the spec, until the tenant names the control plane. The tenant stays as it is.
func (w *work) takeOver(ctx context.Context, has *v1alpha1.TenantControlPlane) error {
	wrote := `k:{\"uid\":\"` + string(w.o.UID) + `\"}`
	if w.visit != nil {
		if _, ours := has.Annotations[name.AnnotationControlPlane]; ours {
			return nil
		}
		wrote = `"f:spec"`
	}
	return w.ask(ctx, func(ctx context.Context) error {
		return w.client.Unmanage(ctx, kube.TenantControlPlanes, has, has, func(f metav1.ManagedFieldsEntry) bool {
			return f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == "" && f.FieldsV1 != nil &&
				strings.Contains(f.FieldsV1.GetRawString(), wrote)
		})
	})
}

// infrastructure gives the Cluster's infrastructure the endpoint.
func (w *work) infrastructure(ctx context.Context, at controlplane.APIEndpoint) error {
	text := fmt.Sprintf("%s:%d", at.Host, at.Port)
	changed, err := w.equip(ctx, w.turn.Key, w.of, at)
	if changed && w.own.Endpoint == text {
		w.turn.Drifted(w.of.Spec.InfrastructureRef.Kind + " " + w.of.Spec.InfrastructureRef.Name)
	}
	if err == nil {
		w.own.Endpoint = text
	}
	return err
}

// stepMade is the step of a control plane that has a tenant and isn't initialized yet.
const stepMade = "made"

// note keeps what was done in the tenant's bucket, once there is one, and tells when the control plane was initialized.
func (w *work) note(ctx context.Context) error {
	t := w.turn
	if w.visit != nil || w.tenant == nil || t.Tenant == nil || t.Tenant.Deleting || t.UID != string(w.tenant.UID) {
		return nil
	}
	w.own.Cluster = clusterOf(w.o)
	first := w.initialized && usable(w.tenant) && !w.own.Initialized
	w.own.Initialized = w.own.Initialized || first
	done := loop.Outcome{Step: stepMade, Inputs: w.own.Applied, Data: w.own}
	if w.own.Initialized {
		done.Step = event.Initialized
	}
	if first {
		done.Facts = []loop.Tell{{What: event.Initialized, Data: event.CAPIInitialized{
			About: t.About(), ControlPlane: w.o.Name, Cluster: w.own.Cluster,
		}}}
	}
	return t.Done(ctx, done)
}

// stale has a turn repeated whose object was changed since it was read.
func stale(err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", intent.ErrStale, err)
	}
	return err
}
