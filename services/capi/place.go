package capi

// Where a control plane's tenant is: in the management cluster under the control plane's own name, or in another cluster. There it is
// recorded on the control plane when it is placed, so that it is found again whatever becomes of the reference, and never looked for, or
// made a second time, in the wrong cluster.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// record is what [name.AnnotationExternalTenant] says: where a tenant in another cluster is.
type record struct {
	// Secret, namespace/name, has the cluster's kubeconfig under Key.
	Secret string `json:"secret"`
	Key    string `json:"key"`
	// Namespace and Name are the tenant's there. NamespaceUID tells the cluster from any other.
	Namespace    string    `json:"namespace"`
	Name         string    `json:"name"`
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`
}

func (r *record) source() source {
	namespace, secret, _ := strings.Cut(r.Secret, "/")
	return source{namespace, secret, r.Key}
}

func (r *record) String() string {
	return fmt.Sprintf("TenantControlPlane %s/%s in the cluster of Secret %s, key %s", r.Namespace, r.Name, r.Secret, r.Key)
}

// recordOf is what a control plane's annotation says; nil without one.
func recordOf(o *controlplane.KamajiControlPlane) (*record, error) {
	text, is := o.Annotations[name.AnnotationExternalTenant]
	if !is {
		return nil, nil
	}
	r := &record{}
	if err := json.Unmarshal([]byte(text), r); err != nil || r.source().secret == "" || r.Key == "" || r.Namespace == "" || r.Name == "" {
		return nil, cannot("metadata.annotations[%s] %q: must be as capi wrote it: {\"secret\":\"<namespace>/<name>\",\"key\":…,\"namespace\":…,\"name\":…}",
			name.AnnotationExternalTenant, text)
	}
	return r, nil
}

// placed is where a control plane in another cluster must have its tenant; nil for one in the management cluster. [heldError] when it can't
// be as the control plane says.
func (s *svc) placed(o *controlplane.KamajiControlPlane) (*record, error) {
	had, err := recordOf(o)
	ref := o.Spec.Deployment.ExternalClusterReference
	const field = "spec.deployment.externalClusterReference"
	switch {
	case err != nil:
		return nil, err
	case ref == nil && had == nil:
		return nil, nil
	case ref == nil && o.DeletionTimestamp != nil:
		return had, s.allowed(o, had)
	case ref == nil:
		return nil, cannot("%s was taken away, but tenants aren't moved between clusters, and this one is %s: put it back", field, had)
	}
	want := &record{
		Secret: cmp.Or(ref.KubeconfigSecretNamespace, o.Namespace) + "/" + ref.KubeconfigSecretName, Key: ref.KubeconfigSecretKey,
		Namespace: cmp.Or(ref.DeploymentNamespace, o.Namespace), Name: "kcp-" + string(o.UID),
	}
	switch {
	case had == nil:
	case had.Namespace == want.Namespace:
		want.Name, want.NamespaceUID = had.Name, had.NamespaceUID
	case o.DeletionTimestamp != nil:
		want = had
	default:
		return nil, cannot("%s.deploymentNamespace: must stay %s, where the tenant is: tenants aren't moved", field, had.Namespace)
	}
	return want, s.allowed(o, want)
}

// allowed holds where a control plane's tenant is to be against the feature gates.
func (s *svc) allowed(o *controlplane.KamajiControlPlane, r *record) error {
	const field = "spec.deployment.externalClusterReference"
	switch {
	case !s.gates[gateExternal]:
		return cannot("%s: tenants in other clusters are not allowed here; capi's flag --feature-gates=%s=true allows them", field, gateExternal)
	case r.source().namespace != o.Namespace && !s.gates[gateCrossNamespace]:
		return cannot("%s.kubeconfigSecretNamespace: Secrets of other namespaces are not allowed here; capi's flag --feature-gates=%s=true,%s=true allows them",
			field, gateExternal, gateCrossNamespace)
	}
	return nil
}

// reach finds the tenant, where it is to be. done says that there is nothing more to do in this turn.
func (w *work) reach(ctx context.Context) (done bool, err error) {
	if w.placing, err = w.placed(w.o); err == nil && w.placing != nil {
		err = w.notHere(ctx)
	}
	if err != nil {
		return true, w.unreached(ctx, err)
	}
	if w.placing == nil {
		w.externals.drop(w.turn.Key)
		w.drop(controlplane.ConditionExternalClientFound)
		w.client, w.at = w.kube, types.NamespacedName{Namespace: w.o.Namespace, Name: w.o.Name}
		return false, w.find(ctx)
	}
	if w.of == nil && w.o.DeletionTimestamp == nil { // nothing is sent to anywhere for it yet
		w.set(controlplane.ConditionTenantCreated, false, controlplane.ReasonWaitingForCluster, noCluster(w.o))
		return true, w.keepStatus(ctx)
	}
	w.at = types.NamespacedName{Namespace: w.placing.Namespace, Name: w.placing.Name}
	w.visit, err = w.externals.enter(w.turn.Key, w.placing.source(), w.at)
	if errors.Is(err, errPending) {
		w.turn.Alarm(pendingFor, loop.Wake{Kind: wakeSeen})
		return true, nil
	}
	if err == nil {
		w.client, w.own = w.visit.client, w.visit.member.own
		err = w.refused(w.find(ctx))
	}
	if err == nil {
		err = w.sameCluster()
	}
	if err != nil {
		return true, w.unreached(ctx, err)
	}
	w.set(controlplane.ConditionExternalClientFound, true, controlplane.ReasonSucceeded, "")
	return false, nil
}

// notHere makes sure that a control plane that is to have its tenant in another cluster has none here. One that is deleted has it deleted
// where it is.
func (w *work) notHere(ctx context.Context) error {
	if had, _ := recordOf(w.o); had != nil {
		return nil
	}
	var here metav1.PartialObjectMetadata
	err := w.kube.Get(ctx, kube.TenantControlPlanes, w.o.Namespace, w.o.Name, &here)
	switch {
	case err != nil:
		return found(err)
	case w.o.DeletionTimestamp == nil:
		return cannot("spec.deployment.externalClusterReference: there is a TenantControlPlane %s in the management cluster; tenants aren't moved between clusters, "+
			"so take the reference away, or give the control plane another name", w.o.Name)
	case metav1.IsControlledBy(&here, w.o):
		w.placing = nil
	}
	return nil
}

// sameCluster makes sure that a tenant that isn't where it was placed isn't made again in another cluster. One that is found is the right
// one, also in a namespace that was made anew.
func (w *work) sameCluster() error {
	was, is := w.placing.NamespaceUID, w.visit.uid
	if w.tenant == nil && was != "" && was != is {
		return cannot("the kubeconfig leads to another cluster than the tenant is in: namespace %s has UID %s there, not %s. Put the right kubeconfig into Secret %s; "+
			"if the tenant is lost for good, delete the annotation %s of the control plane to have an empty one made", w.placing.Namespace, is, was, w.placing.Secret, name.AnnotationExternalTenant)
	}
	w.placing.NamespaceUID = is
	return nil
}

// refused has what another cluster refuses, or fails at, be told and looked at again: nobody else would.
func (w *work) refused(err error) error {
	var held *heldError
	switch i := intent.Of(err); {
	case err == nil, w.visit == nil, errors.As(err, &held), i == intent.Reread, i == intent.HandOver, errors.Is(err, context.Canceled):
		return err
	}
	w.held = true
	return cannot("the cluster refuses: %s", err)
}

// ask asks the API server where the tenant is.
func (w *work) ask(ctx context.Context, f func(context.Context) error) error {
	if w.visit == nil {
		return f(ctx)
	}
	return w.visit.do(ctx, f)
}

// find reads the tenant.
func (w *work) find(ctx context.Context) error {
	tenant := &v1alpha1.TenantControlPlane{}
	err := w.ask(ctx, func(ctx context.Context) error {
		return w.client.Get(ctx, kube.TenantControlPlanes, w.at.Namespace, w.at.Name, tenant)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case w.owns(tenant):
		w.tenant = tenant
	default:
		w.foreign = true
	}
	return nil
}

// owns reports whether a tenant is the control plane's. In the management cluster that is its controller, or there is none and the tenant
// says that it is the Cluster's; elsewhere the tenant names the control plane, or has the name that it gets.
func (w *work) owns(tenant *v1alpha1.TenantControlPlane) bool {
	if w.visit != nil {
		of, named := tenant.Annotations[name.AnnotationControlPlane]
		return of == w.turn.Key.Namespace+"/"+w.turn.Key.Name || !named && tenant.Name == "kcp-"+string(w.o.UID)
	}
	if metav1.GetControllerOf(tenant) == nil {
		return w.of != nil && tenant.Labels[name.LabelClusterName] == w.of.Name
	}
	return metav1.IsControlledBy(tenant, w.o)
}

// leave ends the visit of another cluster.
func (w *work) leave() {
	if w.visit != nil {
		w.visit.member.own = w.own
		w.visit.leave()
	}
}

// unreached says that the tenant's cluster can't be asked, because of a [heldError]. The rest of the status stays as it was: what runs there
// runs on. A control plane that is being deleted waits for the cluster for a while.
func (w *work) unreached(ctx context.Context, err error) error {
	var held *heldError
	if !errors.As(err, &held) {
		return err
	}
	w.set(controlplane.ConditionExternalClientFound, false, held.reason, held.message)
	if w.held {
		w.turn.Alarm(loop.HeldAgain(w.heldFor()), loop.Wake{Kind: wakeSeen})
	}
	if w.o.DeletionTimestamp == nil {
		return w.keepStatus(ctx)
	}
	from := w.o.DeletionTimestamp.Time
	if since := meta.FindStatusCondition(w.conditions, controlplane.ConditionExternalClientFound).LastTransitionTime.Time; since.After(from) {
		from = since
	}
	until := from.Add(w.abandonAfter)
	left := until.Sub(w.now)
	if left <= 0 {
		return w.abandon(ctx, held.message)
	}
	message := fmt.Sprintf("the tenant is to be deleted, and its cluster can't be asked (%s); at %s the control plane is let go, and the tenant left there",
		held.message, until.UTC().Format(time.RFC3339))
	w.set(controlplane.ConditionReady, false, controlplane.ReasonDeleting, message)
	w.set(controlplane.ConditionAvailable, false, controlplane.ReasonDeleting, message)
	w.turn.Alarm(left, loop.Wake{Kind: wakeSeen})
	return w.keepStatus(ctx)
}

// abandon lets a control plane go whose tenant's cluster can't be asked, and says what may be left there.
func (w *work) abandon(ctx context.Context, why string) error {
	if w.placing == nil { // it can't be told where the tenant is
		w.placing = &record{}
	}
	left := event.CAPIAbandoned{
		About:        event.About{Namespace: w.o.Namespace, Name: w.o.Name, UID: string(w.o.UID), Generation: w.o.Generation},
		ControlPlane: w.o.Name, Secret: w.placing.Secret, Key: w.placing.Key, Tenant: w.placing.Namespace + "/" + w.placing.Name, Message: why,
	}
	w.log.Warn("control plane let go, its tenant may be left in another cluster", "controlPlane", w.turn.Key.String(),
		"secret", left.Secret, "key", left.Key, "tenant", left.Tenant, "cause", why)
	if err := w.bus.Tell(ctx, w.turn.Key, w.o.Generation, events.ID(event.Abandoned, string(w.o.UID)), event.Abandoned, left); err != nil {
		return err
	}
	return w.release(ctx)
}

// keepStatus writes the conditions, and leaves the rest of the status as it is.
func (w *work) keepStatus(ctx context.Context) error {
	status := w.o.Status
	status.Conditions = w.sorted()
	return found(w.write(ctx, w.o, status))
}
