package clusterapi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/test/env"
)

// place writes a Cluster without infrastructure, whose control plane is elsewhere.
func place(t testing.TB, n, reference string, replicas int) cluster {
	t.Helper()
	put(t, controlPlanes, n, fmt.Sprintf("spec: {version: v1.36.3, replicas: %d, deployment: {externalClusterReference: %s}}", replicas, reference))
	put(t, clusters, n, fmt.Sprintf(`
spec:
  clusterNetwork: {services: {cidrBlocks: [10.96.0.0/16]}, pods: {cidrBlocks: [10.244.0.0/16]}}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: %s}`, n))
	return cluster{name: n, controlPlane: n}
}

// TestExternal has a Cluster whose control plane is in another cluster, where Stoker makes the tenant.
func TestExternal(t *testing.T) {
	t.Setenv("STOKER_FEATURE_GATES", env.ExternalGates)
	t.Setenv("STOKER_ABANDON_AFTER", "5s")
	var taps []*env.Tap
	for _, service := range name.Services() {
		_, tap := e.Tapped(t, service, "a")
		taps = append(taps, tap)
	}
	core(t)
	x := e.Elsewhere(t, "elsewhere")
	x.Secret(t, e, namespace, "elsewhere")
	c := place(t, "far", x.Reference("elsewhere"), 1)
	awaitControlPlane(t, c, "Available", func(o *controlplane.KamajiControlPlane) bool {
		return is(o, controlplane.ConditionAvailable) && is(o, controlplane.ConditionExternalClientFound)
	})
	c.works(t)
	there := "kcp-" + string(controlPlane(t, c).UID)

	t.Run("what it is called there, and whose it is", func(t *testing.T) {
		o := remote(t, x, there)
		if len(o.OwnerReferences) > 0 || o.Annotations[name.AnnotationControlPlane] != "default/far" || o.Labels["cluster.x-k8s.io/cluster-name"] != "far" {
			t.Errorf("%+v", o.ObjectMeta)
		}
		for _, s := range []string{"far-kubeconfig", "far-ca"} {
			if got := secret(t, s); got.Type != "cluster.x-k8s.io/secret" || !metav1.IsControlledBy(got, controlPlane(t, c)) {
				t.Errorf("%s: %s, %+v", s, got.Type, got.OwnerReferences)
			}
		}
		e.Fact(t, c.key(), name.ServiceCAPI, event.Initialized)
	})
	t.Run("at rest nobody writes", func(t *testing.T) { quiet(t, taps...) })
	t.Run("changes go there", func(t *testing.T) {
		change(t, controlPlanes, c.controlPlane, `{"spec":{"replicas":2}}`)
		env.Eventually(t, "two replicas", func() error {
			if s := controlPlane(t, c).Status; s.ReadyReplicas == nil || *s.ReadyReplicas != 2 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	})
	t.Run("what somebody changes there goes back", func(t *testing.T) {
		must(t, e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, x.Namespace, there, map[string]any{
			"spec": map[string]any{"controlPlane": map[string]any{"deployment": map[string]any{"replicas": 1}}},
		}, nil))
		env.Eventually(t, "its replicas", func() error {
			if o := remote(t, x, there); *o.Spec.ControlPlane.Deployment.Replicas != 2 {
				return errNotYet
			}
			return nil
		})
	})
	t.Run("certificates that are renewed there arrive", func(t *testing.T) {
		before := secret(t, "far-kubeconfig").Data["value"]
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "annotate", "secret", "-n", x.Namespace, remote(t, x, there).Status.KubeConfig.Admin.SecretName, name.AnnotationRotate+"=")
		env.Eventually(t, "another kubeconfig", func() error {
			if string(secret(t, "far-kubeconfig").Data["value"]) == string(before) {
				return errNotYet
			}
			return nil
		})
		c.works(t)
	})
	t.Run("while the cluster is a black hole its tenant stays Available, and that is said", func(t *testing.T) { holed(t, c, x) })
	t.Run("its Secret is taken away, and comes back", func(t *testing.T) {
		_, err := e.Admin.Delete(t.Context(), kube.Secrets, namespace, "elsewhere", metav1.DeleteOptions{})
		must(t, err)
		awaitControlPlane(t, c, "that it is missed", func(o *controlplane.KamajiControlPlane) bool {
			is := meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionExternalClientFound)
			return is.Status == metav1.ConditionFalse && strings.Contains(is.Message, "is not there")
		})
		c.works(t)
		x.Secret(t, e, namespace, "elsewhere")
		awaitControlPlane(t, c, "the cluster", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionExternalClientFound) })
	})
	t.Run("a tenant isn't moved, or made twice", func(t *testing.T) { unmoved(t, c, x, there) })
	t.Run("an address that comes later is told, and the Cluster keeps its own", func(t *testing.T) {
		before := read(t, clusters, c.name).Spec.ControlPlaneEndpoint
		change(t, controlPlanes, c.controlPlane, `{"spec":{"network":{"ingress":{"className":"none","hostname":"far.example.com"}}}}`)
		awaitControlPlane(t, c, "the address", func(o *controlplane.KamajiControlPlane) bool {
			is := meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionEndpointPatched)
			return o.Spec.ControlPlaneEndpoint == (controlplane.APIEndpoint{Host: "far.example.com", Port: 443}) &&
				is.Status == metav1.ConditionTrue && strings.Contains(is.Message, "stays host "+before.Host)
		})
		if now := read(t, clusters, c.name).Spec.ControlPlaneEndpoint; now != before {
			t.Errorf("%+v", now)
		}
		change(t, controlPlanes, c.controlPlane, `{"spec":{"network":{"ingress":null}}}`)
		awaitControlPlane(t, c, "the former address", func(o *controlplane.KamajiControlPlane) bool {
			return o.Spec.ControlPlaneEndpoint.Host == before.Host &&
				meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionEndpointPatched).Message == ""
		})
	})
	t.Run("at the end the control plane stays until its tenant is gone there", func(t *testing.T) {
		_, err := e.Admin.Delete(t.Context(), clusters, namespace, c.name, metav1.DeleteOptions{})
		must(t, err)
		awaitGone(t, controlPlanes, namespace, c.controlPlane)
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, x.Namespace, there, &object{}); !apierrors.IsNotFound(err) {
			t.Errorf("the tenant: %v", err)
		}
		awaitGone(t, kube.Secrets, namespace, "far-kubeconfig")
	})
	t.Run("a ClusterClass places it, by a variable", func(t *testing.T) { placedByClass(t, x, taps) })
	t.Run("what can't be is told, and holds nothing up at the end", func(t *testing.T) { unreachable(t, x) })
	t.Run("another API server", func(t *testing.T) { apart(t, x) })
	t.Run("what Kamaji's provider has placed is taken over", func(t *testing.T) { placedBefore(t, x) })
}

// placedByClass has a Cluster of a ClusterClass, in which a variable says where the control plane is; it is upgraded there by its topology.
func placedByClass(t *testing.T, x env.Elsewhere, taps []*env.Tap) {
	e.Manifests(t, filepath.Join("testdata", "class"), filepath.Join("testdata", "placed"))
	put(t, clusters, "placed", fmt.Sprintf(`
spec:
  topology:
    classRef: {name: placed}
    version: v1.35.4
    controlPlane: {replicas: 1}
    variables: [{name: managementCluster, value: {secret: elsewhere, namespace: %s}}]`, x.Namespace))
	c := ofTopology(t, "placed")
	c.available(t, "v1.35.4", 1)
	c.works(t)
	there := "kcp-" + string(controlPlane(t, c).UID)
	before := remote(t, x, there)
	quiet(t, taps...)
	change(t, clusters, c.name, `{"spec":{"topology":{"version":"v1.36.3"}}}`)
	c.available(t, "v1.36.3", 1)
	if o := remote(t, x, there); o.UID != before.UID || o.Spec.Kubernetes.Version != "v1.36.3" {
		t.Errorf("UID %s, not %s; version %s", o.UID, before.UID, o.Spec.Kubernetes.Version)
	}
	_, err := e.Admin.Delete(t.Context(), clusters, namespace, c.name, metav1.DeleteOptions{})
	must(t, err)
	awaitGone(t, clusters, namespace, c.name)
	awaitGone(t, infrastructures, namespace, c.infrastructure)
	awaitGone(t, controlPlanes, namespace, c.controlPlane)
	awaitGone(t, kube.TenantControlPlanes, x.Namespace, there)
}

// placedBefore has a control plane that Kamaji's provider placed: the control plane has its finalizer, and the tenant says by its name alone whose it
// is.
func placedBefore(t *testing.T, x env.Elsewhere) {
	x.Secret(t, e, namespace, "before")
	c := cluster{name: "before", controlPlane: "before"}
	put(t, controlPlanes, c.controlPlane, fmt.Sprintf(`
metadata: {finalizers: [%s], annotations: {cluster.x-k8s.io/paused: ""}, labels: {tier: gold}}
spec: {version: v1.36.3, replicas: 0, apiServer: {extraArgs: [--v=3]}, deployment: {externalClusterReference: %s}}`, name.FinalizerExternalTenant, x.Reference("before")))
	n := "kcp-" + string(controlPlane(t, c).UID)
	there := fmt.Sprintf(`{apiVersion: kamaji.clastix.io/v1alpha1, kind: TenantControlPlane, metadata: {name: %s, namespace: %s, labels: {tier: gold}},
		spec: {controlPlane: {deployment: {replicas: 0, extraArgs: {apiServer: [--v=3]}}, service: {serviceType: LoadBalancer}},
		kubernetes: {version: v1.36.3, kubelet: {cgroupfs: systemd, preferredAddressTypes: [InternalIP, ExternalIP, Hostname]}}}}`, n, x.Namespace)
	out, err := e.TryKubectl(t.Context(), e.Local.Kubeconfig("admin"), strings.NewReader(there), "create", "-f", "-", "--field-manager=manager")
	if err != nil {
		t.Fatal(out)
	}
	before := remote(t, x, n)
	put(t, clusters, c.name, "spec: {controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: before}}")
	change(t, controlPlanes, c.controlPlane, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
	awaitControlPlane(t, c, "its tenant", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionTenantCreated) })
	after := remote(t, x, n)
	if after.UID != before.UID || after.Annotations[name.AnnotationControlPlane] != "default/before" || after.Generation != before.Generation {
		t.Errorf("UID %s, not %s; annotations %v; generation %d, not %d", after.UID, before.UID, after.Annotations, after.Generation, before.Generation)
	}
	if o := controlPlane(t, c); !slices.Equal(o.Finalizers, []string{name.FinalizerControlPlane}) {
		t.Errorf("%v", o.Finalizers)
	}
	change(t, controlPlanes, c.controlPlane, `{"spec":{"apiServer":{"extraArgs":null}}}`)
	env.Eventually(t, "what is taken off", func() error {
		if remote(t, x, n).Spec.ControlPlane.Deployment.ExtraArgs != nil {
			return errNotYet
		}
		return nil
	})
	_, err = e.Admin.Delete(t.Context(), clusters, namespace, c.name, metav1.DeleteOptions{})
	must(t, err)
	awaitGone(t, controlPlanes, namespace, c.controlPlane)
	awaitGone(t, kube.TenantControlPlanes, x.Namespace, n)
}

// apart places a control plane in a cluster with an API server of its own, a tenant where no Stoker is, and the test does what one would do
// there. Then the kubeconfig leads to the management cluster, where there is a namespace of that name, too.
func apart(t *testing.T, x env.Elsewhere) {
	key := events.Tenant(namespace, "apart")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	kubeconfig, err := os.ReadFile(e.Kubeconfig(t, key))
	must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	must(t, local.ApplyManifests(t.Context(), config, filepath.Join(env.Root(), "deployments", "crds")))
	there, err := kube.FromKubeconfig(kubeconfig, kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	must(t, err)
	t.Cleanup(there.Close)
	at := env.Elsewhere{Namespace: metav1.NamespaceDefault, Kubeconfig: kubeconfig}
	at.Secret(t, e, namespace, "apart")
	c := place(t, "far-apart", at.Reference("apart"), 1)
	awaitControlPlane(t, c, "its tenant", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionTenantCreated) })
	n := "kcp-" + string(controlPlane(t, c).UID)
	tenant := &v1alpha1.TenantControlPlane{}
	tell := func(host string) {
		t.Helper()
		must(t, there.Get(t.Context(), kube.TenantControlPlanes, at.Namespace, n, tenant))
		must(t, there.ApplyStatus(t.Context(), kube.TenantControlPlanes, &tenant.ObjectMeta, map[string]any{"controlPlaneEndpoint": host + ":6443"}))
		awaitControlPlane(t, c, "the endpoint", func(o *controlplane.KamajiControlPlane) bool { return o.Spec.ControlPlaneEndpoint.Host == host })
	}
	tell("192.0.2.1")

	e.Kubectl(t, e.Local.Kubeconfig("admin"), "create", "clusterrolebinding", "apart", "--clusterrole=cluster-admin", "--serviceaccount="+x.Namespace+":placer")
	env.Elsewhere{Kubeconfig: x.Kubeconfig}.Secret(t, e, namespace, "apart")
	awaitControlPlane(t, c, "the refusal", func(o *controlplane.KamajiControlPlane) bool {
		is := meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionExternalClientFound)
		return is.Status == metav1.ConditionFalse && strings.Contains(is.Message, "leads to another cluster")
	})
	if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, at.Namespace, n, &object{}); !apierrors.IsNotFound(err) {
		t.Errorf("in the wrong cluster: %v", err)
	}
	at.Secret(t, e, namespace, "apart")
	awaitControlPlane(t, c, "its own cluster", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionExternalClientFound) })

	_, err = e.Admin.Delete(t.Context(), clusters, namespace, c.name, metav1.DeleteOptions{})
	must(t, err)
	awaitGone(t, controlPlanes, namespace, c.controlPlane)
	if err := there.Get(t.Context(), kube.TenantControlPlanes, at.Namespace, n, tenant); !apierrors.IsNotFound(err) {
		t.Errorf("the tenant: %v", err)
	}
	e.Delete(t, key)
	e.Gone(t, key)
}

// holed makes a cluster a black hole and has it come back.
func holed(t *testing.T, c cluster, x env.Elsewhere) {
	awaitControlPlane(t, c, "Available with two replicas", func(o *controlplane.KamajiControlPlane) bool {
		return is(o, controlplane.ConditionAvailable) && o.Status.ObservedGeneration == o.Generation && o.Status.Replicas != nil && *o.Status.Replicas == 2
	})
	x.Link.Hole(true)
	change(t, controlPlanes, c.controlPlane, `{"spec":{"scheduler":{"extraArgs":["--v=2"]}}}`)
	awaitControlPlane(t, c, "the outage", func(o *controlplane.KamajiControlPlane) bool {
		is := meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionExternalClientFound)
		return is.Status == metav1.ConditionFalse && is.Reason == controlplane.ReasonClusterUnreachable
	})
	// The rest is as it was last seen.
	o := controlPlane(t, c)
	if !is(o, controlplane.ConditionTenantCreated) || !is(o, controlplane.ConditionKubeadmResourcesCreated) || *o.Status.Replicas != 2 ||
		o.Status.ObservedGeneration == o.Generation {
		t.Errorf("%+v", o.Status)
	}
	for _, seen := range o.Status.Conditions {
		if seen.Type != controlplane.ConditionExternalClientFound && seen.Type != controlplane.ConditionPaused &&
			(seen.ObservedGeneration == o.Generation || seen.Reason == controlplane.ReasonClusterUnreachable) {
			t.Errorf("%+v", seen)
		}
	}
	x.Link.Hole(false)
	awaitControlPlane(t, c, "the end of the outage", func(o *controlplane.KamajiControlPlane) bool {
		return is(o, controlplane.ConditionExternalClientFound) && o.Status.ObservedGeneration == o.Generation
	})
}

// unmoved changes what a control plane refers to, in each way that would lose its tenant or make another.
func unmoved(t *testing.T, c cluster, x env.Elsewhere, there string) {
	other := e.Elsewhere(t, "other-cluster")
	other.Secret(t, e, namespace, "other-cluster")
	back := fmt.Sprintf(`{"spec":{"deployment":{"externalClusterReference":{"kubeconfigSecretName":"elsewhere","kubeconfigSecretKey":"value","deploymentNamespace":%q}}}}`, x.Namespace)
	refused := func(what, message string) {
		t.Helper()
		awaitControlPlane(t, c, what, func(o *controlplane.KamajiControlPlane) bool {
			is := meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionExternalClientFound)
			return is.Status == metav1.ConditionFalse && strings.Contains(is.Message, message)
		})
		change(t, controlPlanes, c.controlPlane, back)
		awaitControlPlane(t, c, "the end of it", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionExternalClientFound) })
	}
	for patch, message := range map[string]string{
		`{"spec":{"deployment":{"externalClusterReference":null}}}`:                                          "was taken away",
		`{"spec":{"deployment":{"externalClusterReference":{"deploymentNamespace":"other-cluster"}}}}`:       "must stay elsewhere",
		`{"spec":{"deployment":{"externalClusterReference":{"kubeconfigSecretNamespace":"other-cluster"}}}}`: "may not be used from namespace default",
		`{"spec":{"deployment":{"externalClusterReference":{"kubeconfigSecretName":"missing"}}}}`:            "is not there",
		`{"spec":{"deployment":{"externalClusterReference":{"kubeconfigSecretKey":"missing"}}}}`:             "has no key missing",
	} {
		change(t, controlPlanes, c.controlPlane, patch)
		if strings.Contains(patch, "kubeconfigSecretNamespace") {
			back = strings.Replace(back, `"kubeconfigSecretKey"`, `"kubeconfigSecretNamespace":null,"kubeconfigSecretKey"`, 1)
		}
		refused(patch, message)
	}
	// A namespace that was made anew, with the tenant brought back, has another UID.
	recorded := controlPlane(t, c).Annotations[name.AnnotationExternalTenant]
	change(t, controlPlanes, c.controlPlane, `{"metadata":{"annotations":{"`+name.AnnotationExternalTenant+`":`+
		fmt.Sprintf("%q", strings.Replace(recorded, `"namespaceUID":"`, `"namespaceUID":"0`, 1))+`}}}`)
	awaitControlPlane(t, c, "the right record", func(o *controlplane.KamajiControlPlane) bool {
		return o.Annotations[name.AnnotationExternalTenant] == recorded
	})
	var all v1alpha1.TenantControlPlaneList
	must(t, e.Admin.List(t.Context(), kube.TenantControlPlanes, "", "", &all))
	if len(all.Items) != 1 || all.Items[0].Name != there {
		t.Errorf("%d tenants", len(all.Items))
	}
}

// unreachable makes control planes whose clusters can't be asked, for a reason each, and deletes them.
func unreachable(t *testing.T, x env.Elsewhere) {
	bad := func(n, from, to string) {
		data := strings.Replace(string(x.Kubeconfig), from, to, 1)
		if data == string(x.Kubeconfig) {
			t.Fatalf("%s: the kubeconfig has no %q", n, from)
		}
		env.Elsewhere{Kubeconfig: []byte(data)}.Secret(t, e, namespace, n)
	}
	other, err := pki.OpenAuthority(t.TempDir(), "other")
	must(t, err)
	token := regexp.MustCompile(`token: .*`).FindString(string(x.Kubeconfig))
	bad("plugin", token, "exec: {command: touch, args: [/tmp/x], apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}")
	bad("stranger", token, "token: eyJhbGciOiJSUzI1NiJ9.e30.AA")
	bad("nobody", regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(x.Kubeconfig)), "127.0.0.1:1")
	bad("untrusted", regexp.MustCompile(`certificate-authority-data: .*`).FindString(string(x.Kubeconfig)),
		"certificate-authority-data: "+base64.StdEncoding.EncodeToString(other.Cert))
	env.Elsewhere{}.Secret(t, e, namespace, "empty")
	x.Secret(t, e, namespace, "plain")
	cases := map[string]struct{ reference, says string }{
		"missing":   {x.Reference("missing"), "is not there"},
		"empty":     {x.Reference("empty"), "has no key value"},
		"plugin":    {x.Reference("plugin"), "exec is refused"},
		"stranger":  {x.Reference("stranger"), "Unauthorized"},
		"nobody":    {x.Reference("nobody"), "connection refused"},
		"untrusted": {x.Reference("untrusted"), "certificate"},
		"nowhere":   {env.Elsewhere{Namespace: "nowhere"}.Reference("plain"), "nowhere"},
	}
	for n, c := range cases {
		place(t, n, c.reference, 0)
	}
	for n, c := range cases {
		awaitControlPlane(t, cluster{name: n, controlPlane: n}, n, func(o *controlplane.KamajiControlPlane) bool {
			is := meta.FindStatusCondition(o.Status.Conditions, controlplane.ConditionExternalClientFound)
			return is != nil && is.Status == metav1.ConditionFalse && strings.Contains(is.Message, c.says)
		})
	}
	// One was placed before its cluster went.
	lost := place(t, "lost", x.Reference("plain"), 0)
	awaitControlPlane(t, lost, "its tenant", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionTenantCreated) })
	uid := string(controlPlane(t, lost).UID)
	x.Link.Hole(true)
	for _, n := range append([]string{"lost"}, slices.Collect(maps.Keys(cases))...) {
		_, err := e.Admin.Delete(t.Context(), clusters, namespace, n, metav1.DeleteOptions{})
		must(t, err)
	}
	for n := range cases {
		awaitGone(t, controlPlanes, namespace, n)
	}
	awaitGone(t, controlPlanes, namespace, "lost")
	e.Fact(t, lost.key(), name.ServiceCAPI, event.Abandoned)
	x.Link.Hole(false)
	if o := remote(t, x, "kcp-"+uid); o.DeletionTimestamp != nil {
		t.Error("what was left is being deleted")
	}
	e.Delete(t, events.Tenant(x.Namespace, "kcp-"+uid))
	e.Gone(t, events.Tenant(x.Namespace, "kcp-"+uid))
}

// remote is a tenant elsewhere.
func remote(t testing.TB, x env.Elsewhere, n string) *v1alpha1.TenantControlPlane {
	t.Helper()
	var o v1alpha1.TenantControlPlane
	must(t, e.Admin.Get(t.Context(), kube.TenantControlPlanes, x.Namespace, n, &o))
	return &o
}

func awaitGone(t testing.TB, r kube.Resource, namespace, n string) {
	t.Helper()
	env.Eventually(t, "the end of "+r.Kind+" "+n, func() error {
		err := e.Admin.Get(t.Context(), r, namespace, n, &object{})
		if err == nil {
			return errors.New("it is there")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
