package clusterapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// contract holds what Cluster API asks of a control plane provider (https://cluster-api.sigs.k8s.io/developer/providers/contracts/control-plane),
// in both of its versions, against a Cluster whose control plane works with one replica. Each rule has its test.
func contract(t *testing.T, c cluster) {
	status := func(t *testing.T, version string) map[string]any {
		t.Helper()
		r := controlPlanes
		r.GroupVersion = schema.GroupVersion{Group: r.GroupVersion.Group, Version: version}
		var o struct{ Status map[string]any }
		must(t, e.Admin.Get(t.Context(), r, namespace, c.controlPlane, &o))
		return o.Status
	}
	has := func(t *testing.T, status map[string]any, want string) {
		t.Helper()
		var all map[string]any
		must(t, json.Unmarshal([]byte(want), &all))
		for k, v := range all {
			if fmt.Sprint(status[k]) != fmt.Sprint(v) {
				t.Errorf("status.%s is %v, not %v", k, status[k], v)
			}
		}
	}
	for _, kind := range []string{"KamajiControlPlane", "KamajiControlPlaneTemplate"} {
		t.Run(kind+": scope, name, list kind and labels of the definition", func(t *testing.T) { definition(t, kind) })
	}
	t.Run("the control plane gives the endpoint", func(t *testing.T) {
		if at := controlPlane(t, c).Spec.ControlPlaneEndpoint; at.Host == "" || at.Port == 0 {
			t.Errorf("%+v", at)
		}
	})
	t.Run("replicas, and the scale subresource", func(t *testing.T) {
		admin := e.Local.Kubeconfig("admin")
		path := "/apis/controlplane.cluster.x-k8s.io/v1alpha2/namespaces/" + namespace + "/kamajicontrolplanes/" + c.controlPlane + "/scale"
		var scale struct {
			Spec   struct{ Replicas int32 }
			Status struct {
				Replicas int32
				Selector string
			}
		}
		must(t, json.Unmarshal([]byte(e.Kubectl(t, admin, "get", "--raw", path)), &scale))
		var pods corev1.PodList
		must(t, e.Admin.List(t.Context(), kube.Pods, namespace, scale.Status.Selector, &pods))
		if scale.Spec.Replicas != 1 || scale.Status.Replicas != 1 || len(pods.Items) != 1 {
			t.Errorf("%+v, %d pods", scale, len(pods.Items))
		}
		has(t, status(t, "v1alpha2"), `{"replicas":1,"readyReplicas":1,"availableReplicas":1,"upToDateReplicas":1}`)
		has(t, status(t, "v1alpha1"), `{"replicas":1,"readyReplicas":1,"updatedReplicas":1,"unavailableReplicas":0}`)
	})
	t.Run("version, as it runs", func(t *testing.T) {
		has(t, status(t, "v1alpha2"), `{"version":"v1.35.4","versions":[{"version":"v1.35.4","replicas":1}]}`)
		has(t, status(t, "v1alpha1"), `{"version":"v1.35.4"}`)
	})
	t.Run("initialized and ready", func(t *testing.T) {
		has(t, status(t, "v1alpha2"), `{"initialization":{"controlPlaneInitialized":true},"ready":true}`)
		has(t, status(t, "v1alpha1"), `{"initialized":true,"ready":true}`)
	})
	t.Run("no Machines are the control plane's", func(t *testing.T) {
		has(t, status(t, "v1alpha2"), `{"externalManagedControlPlane":true}`)
	})
	t.Run("the condition Available is the Cluster's ControlPlaneAvailable", func(t *testing.T) {
		if !is(controlPlane(t, c), "Available") || !read(t, clusters, c.name).is("ControlPlaneAvailable") {
			t.Error("they are not True")
		}
	})
	t.Run("the condition Paused is there also while it isn't", func(t *testing.T) {
		for _, x := range controlPlane(t, c).Status.Conditions {
			if x.Type == "Paused" && x.Status == "False" && x.Reason == "NotPaused" {
				return
			}
		}
		t.Errorf("%+v", controlPlane(t, c).Status.Conditions)
	})
	contractOfSecrets(t, c)
}

// contractOfSecrets is what the contract says of the Secrets that Cluster API reads.
func contractOfSecrets(t *testing.T, c cluster) {
	t.Helper()
	for purpose, keys := range map[string][]string{"kubeconfig": {"value"}, "ca": {"tls.crt", "tls.key"}} {
		t.Run("Secret <cluster>-"+purpose, func(t *testing.T) {
			s := secret(t, c.name+"-"+purpose)
			if s.Type != "cluster.x-k8s.io/secret" || s.Labels["cluster.x-k8s.io/cluster-name"] != c.name {
				t.Errorf("type %s, labels %v", s.Type, s.Labels)
			}
			for _, key := range keys {
				if len(s.Data[key]) == 0 {
					t.Errorf("no key %s", key)
				}
			}
		})
	}
}

// definition holds what Cluster API asks of how a kind is defined.
func definition(t *testing.T, kind string) {
	var d apiextensionsv1.CustomResourceDefinition
	must(t, e.Admin.Get(t.Context(), kube.CustomResourceDefinitions, "", strings.ToLower(kind)+"s.controlplane.cluster.x-k8s.io", &d))
	if d.Spec.Scope != apiextensionsv1.NamespaceScoped || d.Spec.Names.Kind != kind || d.Spec.Names.ListKind != kind+"List" {
		t.Errorf("%s, %+v", d.Spec.Scope, d.Spec.Names)
	}
	for contract, version := range map[string]string{"v1beta1": "v1alpha1", "v1beta2": "v1alpha2"} {
		served := false
		for _, v := range d.Spec.Versions {
			served = served || v.Name == version && v.Served
		}
		if d.Labels["cluster.x-k8s.io/"+contract] != version || !served {
			t.Errorf("contract %s: label %q, served %t", contract, d.Labels["cluster.x-k8s.io/"+contract], served)
		}
	}
}

// asleep puts a control plane to sleep and wakes it: initialized is said for good.
func asleep(t *testing.T, c cluster) {
	change(t, controlPlanes, c.controlPlane, `{"spec":{"replicas":0}}`)
	env.Eventually(t, "sleep", func() error {
		s := controlPlane(t, c).Status
		if *s.Ready || *s.Replicas > 0 {
			return errNotYet
		}
		if !*s.Initialized || !*s.Initialization.ControlPlaneInitialized {
			t.Error("it isn't initialized any more")
		}
		return nil
	})
	change(t, controlPlanes, c.controlPlane, `{"spec":{"replicas":1}}`)
	c.available(t, "v1.35.4", 1)
}
