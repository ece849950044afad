package clusterapi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestProvider has the service capi as control plane provider of Cluster API, which is installed after it was started.
func TestProvider(t *testing.T) {
	var taps []*env.Tap
	for _, service := range name.Services() {
		_, tap := e.Tapped(t, service, "a")
		taps = append(taps, tap)
	}
	core(t)
	c := cluster{name: "store", controlPlane: "store-cp", infrastructure: "store-infra"}
	c.make(t, "v1.35.4")
	c.available(t, "v1.35.4", 1)
	c.works(t)

	t.Run("contract", func(t *testing.T) { contract(t, c) })
	t.Run("what was initialized stays so, also asleep", func(t *testing.T) { asleep(t, c) })
	t.Run("each step is told", func(t *testing.T) {
		o := controlPlane(t, c)
		for _, condition := range []string{
			controlplane.ConditionTenantCreated, controlplane.ConditionAddressReady, controlplane.ConditionEndpointPatched,
			controlplane.ConditionInfrastructurePatched, controlplane.ConditionInitialized, controlplane.ConditionKubeadmResourcesCreated,
			controlplane.ConditionReady, controlplane.ConditionAvailable,
		} {
			if !is(o, condition) {
				t.Errorf("%s isn't True: %+v", condition, o.Status.Conditions)
			}
		}
		if is(o, controlplane.ConditionPaused) || o.Status.ObservedGeneration != o.Generation {
			t.Errorf("%+v", o.Status)
		}
		e.Fact(t, c.key(), name.ServiceCAPI, "initialized")
	})
	t.Run("the infrastructure has the endpoint", func(t *testing.T) {
		got, want := read(t, infrastructures, c.infrastructure).Spec.ControlPlaneEndpoint, controlPlane(t, c).Spec.ControlPlaneEndpoint
		if got.Host != want.Host || got.Port != want.Port {
			t.Errorf("%+v, not %+v", got, want)
		}
	})
	t.Run("at rest nobody writes", func(t *testing.T) { quiet(t, taps...) })
	t.Run("what is taken off the control plane is taken off the tenant", func(t *testing.T) {
		change(t, controlPlanes, c.controlPlane, `{"metadata":{"labels":{"tier":"gold"},"annotations":{"kamaji.clastix.io/paused":""}},"spec":{"apiServer":{"extraArgs":["--v=3"]}}}`)
		awaitTenant(t, c, "what was added", func(o *v1alpha1.TenantControlPlane) bool {
			_, paused := o.Annotations[name.AnnotationPaused]
			return paused && o.Labels["tier"] == "gold" && o.Spec.ControlPlane.Deployment.ExtraArgs != nil
		})
		change(t, controlPlanes, c.controlPlane, `{"metadata":{"labels":{"tier":null},"annotations":{"kamaji.clastix.io/paused":null}},"spec":{"apiServer":{"extraArgs":null}}}`)
		awaitTenant(t, c, "what was taken off", func(o *v1alpha1.TenantControlPlane) bool {
			_, paused := o.Annotations[name.AnnotationPaused]
			_, tier := o.Labels["tier"]
			return !paused && !tier && o.Spec.ControlPlane.Deployment.ExtraArgs == nil && o.Labels[name.LabelDataStore] != ""
		})
	})
	t.Run("what somebody else changes of the tenant goes back", func(t *testing.T) {
		change(t, kube.TenantControlPlanes, c.controlPlane, `{"spec":{"controlPlane":{"deployment":{"replicas":3}}}}`)
		awaitTenant(t, c, "its replicas", func(o *v1alpha1.TenantControlPlane) bool { return *o.Spec.ControlPlane.Deployment.Replicas == 1 })
	})
	t.Run("while the Cluster is paused nothing is done", func(t *testing.T) { paused(t, c) })
	t.Run("a pause makes one that may be moved ready for that, and its end takes that back", func(t *testing.T) { transferable(t, c) })
	t.Run("replicas and version come from the control plane object", func(t *testing.T) {
		change(t, controlPlanes, c.controlPlane, `{"spec":{"replicas":2}}`)
		c.available(t, "v1.35.4", 2)
		change(t, controlPlanes, c.controlPlane, `{"spec":{"replicas":1,"version":"v1.36.3"}}`)
		c.available(t, "v1.36.3", 1)
		c.works(t)
	})
	t.Run("machines join by Cluster API's own bootstrap provider", func(t *testing.T) {
		installBootstrap(t)
		workers(t, c, "v1.36.3")
	})
	t.Run("a Secret of Cluster API's that is deleted or changed comes back", func(t *testing.T) {
		_, err := e.Admin.Delete(t.Context(), kube.Secrets, namespace, c.name+"-ca", metav1.DeleteOptions{})
		must(t, err)
		change(t, kube.Secrets, c.name+"-kubeconfig", `{"data":{"value":"eA=="}}`)
		c.works(t)
		env.Eventually(t, "the authority", func() error {
			return e.Admin.Get(t.Context(), kube.Secrets, namespace, c.name+"-ca", &object{})
		})
	})
	t.Run("an infrastructure that forgets the endpoint is told again", func(t *testing.T) {
		change(t, infrastructures, c.infrastructure, `{"spec":{"controlPlaneEndpoint":null}}`)
		env.Eventually(t, "the endpoint", func() error {
			if read(t, infrastructures, c.infrastructure).Spec.ControlPlaneEndpoint.Host == "" {
				return errNotYet
			}
			return nil
		})
	})
	t.Run("a Cluster from a ClusterClass", fromAClass)
	t.Run("what can't be is told, and waits", waits)
	t.Run("at the end the control plane stays until its tenant is gone", func(t *testing.T) {
		o := controlPlane(t, c)
		if _, blocked := o.Annotations["clusterctl.cluster.x-k8s.io/block-move"]; !blocked || !slices.Contains(o.Finalizers, name.FinalizerControlPlane) {
			t.Errorf("finalizers %v, annotations %v", o.Finalizers, o.Annotations)
		}
		c.gone(t)
	})
}

// fromAClass makes a Cluster from a ClusterClass, changes what its topology says, and deletes it.
func fromAClass(t *testing.T) {
	e.Manifests(t, filepath.Join("testdata", "class"))
	c := fromClass(t, "classy", "v1.35.4")
	c.available(t, "v1.35.4", 1)
	c.works(t)
	args := func(of *v1alpha1.TenantControlPlane) string {
		return fmt.Sprint(*of.Spec.ControlPlane.Deployment.ExtraArgs)
	}
	o := tenant(t, c)
	if got := args(o); o.Labels["team"] != "b" || o.Labels["class"] != "hosted" || got != "{[--v=1] [] [--v=2] []}" {
		t.Errorf("labels %v, arguments %s", o.Labels, got)
	}
	change(t, clusters, c.name, `{"spec":{"topology":{"version":"v1.36.3","variables":[{"name":"schedulerVerbosity","value":3}]}}}`)
	c.available(t, "v1.36.3", 1)
	if got := args(tenant(t, c)); got != "{[--v=1] [] [--v=3] []}" {
		t.Errorf("arguments %s", got)
	}
	c.gone(t)
}

// waits makes control planes that can't be, and has each say why.
func waits(t *testing.T) {
	other := env.Tenant("other", "v1.36.3")
	e.Apply(t, other)
	for n, c := range map[string]struct{ spec, condition, says string }{
		"alone": {"{version: v1.36.3}", controlplane.ConditionTenantCreated, "no Cluster refers to this control plane"},
		"elsewhere": {"{version: v1.36.3, deployment: {externalClusterReference: {kubeconfigSecretName: a, kubeconfigSecretKey: b, deploymentNamespace: c}}}",
			controlplane.ConditionExternalClientFound, "spec.deployment.externalClusterReference"},
		"old":   {"{version: v1.12.0}", controlplane.ConditionTenantCreated, "spec.kubernetes.version"},
		"other": {"{version: v1.36.3}", controlplane.ConditionTenantCreated, "isn't this control plane's"},
		"nodes": {"{version: v1.36.3, deployment: {nodeSelector: {a: b}}}", controlplane.ConditionTenantCreated, "use-nodes"},
	} {
		put(t, controlPlanes, n, "spec: "+c.spec)
		if n != "alone" {
			put(t, clusters, n, "spec: {controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: "+n+"}}")
		}
		env.Eventually(t, n, func() error {
			var o controlplane.KamajiControlPlane
			must(t, e.Admin.Get(t.Context(), controlPlanes, namespace, n, &o))
			for _, is := range o.Status.Conditions {
				if is.Type == c.condition && is.Status == metav1.ConditionFalse && strings.Contains(is.Message, c.says) {
					return nil
				}
			}
			return fmt.Errorf("%+v", o.Status.Conditions)
		})
	}
	e.Ready(t, events.Tenant(namespace, "other"))
	for _, n := range []string{"alone", "elsewhere", "old", "other", "nodes"} {
		for _, r := range []kube.Resource{clusters, controlPlanes} {
			_, err := e.Admin.Delete(t.Context(), r, namespace, n, metav1.DeleteOptions{})
			must(t, err)
		}
		env.Eventually(t, "the end of "+n, func() error {
			if err := e.Admin.Get(t.Context(), controlPlanes, namespace, n, &object{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("still there: %w", err)
			}
			return nil
		})
	}
	e.Ready(t, events.Tenant(namespace, "other")) // which was never its
	e.Delete(t, events.Tenant(namespace, "other"))
}

// paused pauses a Cluster and lets it go on.
func paused(t *testing.T, c cluster) {
	change(t, clusters, c.name, `{"spec":{"paused":true}}`)
	awaitControlPlane(t, c, "the pause", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionPaused) })
	change(t, controlPlanes, c.controlPlane, `{"spec":{"scheduler":{"extraArgs":["--v=2"]}}}`)
	awaitControlPlane(t, c, "the pause of what was changed", func(o *controlplane.KamajiControlPlane) bool {
		paused := meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionPaused)
		return paused.ObservedGeneration == o.Generation && o.Status.ObservedGeneration < o.Generation
	})
	if args := tenant(t, c).Spec.ControlPlane.Deployment.ExtraArgs; args != nil {
		t.Errorf("%+v", args)
	}
	change(t, clusters, c.name, `{"spec":{"paused":false}}`)
	awaitTenant(t, c, "what was asked for meanwhile", func(o *v1alpha1.TenantControlPlane) bool { return o.Spec.ControlPlane.Deployment.ExtraArgs != nil })
	awaitControlPlane(t, c, "the end of the pause", func(o *controlplane.KamajiControlPlane) bool {
		return !is(o, controlplane.ConditionPaused) && o.Generation == o.Status.ObservedGeneration
	})
}

// transferable pauses a Cluster whose control plane says that it may be moved to another management cluster, and lets it go on here.
func transferable(t *testing.T, c cluster) {
	change(t, controlPlanes, c.controlPlane, `{"metadata":{"annotations":{"`+name.AnnotationTransferWhenPaused+`":"true"}}}`)
	change(t, clusters, c.name, `{"spec":{"paused":true}}`)
	awaitControlPlane(t, c, "to be movable", func(o *controlplane.KamajiControlPlane) bool {
		return is(o, controlplane.ConditionPaused) && !blocked(o)
	})
	if at := tenant(t, c).Annotations; at[name.AnnotationTransfer] == "" {
		t.Errorf("it may be moved, but nobody may take its tenant over: %v", at)
	}
	change(t, clusters, c.name, `{"spec":{"paused":false}}`)
	awaitControlPlane(t, c, "to be blocked again", blocked)
	awaitTenant(t, c, "to stay", func(o *v1alpha1.TenantControlPlane) bool {
		_, transferring := o.Annotations[name.AnnotationTransfer]
		return !transferring
	})
	change(t, controlPlanes, c.controlPlane, `{"metadata":{"annotations":{"`+name.AnnotationTransferWhenPaused+`":null}}}`)
	e.Ready(t, c.key())
	c.works(t)
}

// blocked is whether clusterctl may not move a control plane yet.
func blocked(o *controlplane.KamajiControlPlane) bool {
	_, is := o.Annotations[name.AnnotationBlockMove]
	return is
}

func is(o *controlplane.KamajiControlPlane, condition string) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition && c.Status == metav1.ConditionTrue })
}

func controlPlane(t testing.TB, c cluster) *controlplane.KamajiControlPlane {
	t.Helper()
	var o controlplane.KamajiControlPlane
	must(t, e.Admin.Get(t.Context(), controlPlanes, namespace, c.controlPlane, &o))
	return &o
}

func awaitControlPlane(t testing.TB, c cluster, what string, is func(*controlplane.KamajiControlPlane) bool) {
	t.Helper()
	env.Eventually(t, what, func() error {
		if !is(controlPlane(t, c)) {
			return errNotYet
		}
		return nil
	})
}

func awaitTenant(t testing.TB, c cluster, what string, is func(*v1alpha1.TenantControlPlane) bool) {
	t.Helper()
	env.Eventually(t, what, func() error {
		if !is(tenant(t, c)) {
			return errNotYet
		}
		return nil
	})
}
