package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

var (
	clusters      = kube.Resource{GroupVersion: schema.GroupVersion{Group: "cluster.x-k8s.io", Version: "v1beta2"}, Plural: "clusters", Kind: "Cluster", Namespaced: true}
	controlPlanes = kube.Resource{GroupVersion: schema.GroupVersion{Group: "controlplane.cluster.x-k8s.io", Version: "v1alpha2"}, Plural: "kamajicontrolplanes", Kind: "KamajiControlPlane", Namespaced: true}
)

// byClusterAPI has a control plane made, upgraded and removed by Cluster API, where the cluster has it.
func byClusterAPI(t *testing.T, i *installation) {
	if _, err := i.objects.Metadata(t.Context(), clusters, ""); apierrors.IsNotFound(err) {
		t.Skip("Cluster API isn't in this cluster: clusterctl init --core cluster-api --bootstrap - --control-plane -")
	}
	i.define(t)
	const n = "by-cluster-api"
	spec := func(version string) string {
		return "{version: " + version + ", replicas: 1, registry: " + i.registry + ", network: {serviceType: ClusterIP}}"
	}
	begun := time.Now()
	i.put(t, controlPlanes, n, spec(older))
	i.put(t, clusters, n, "{clusterNetwork: {services: {cidrBlocks: [10.96.0.0/16]}, pods: {cidrBlocks: [10.244.0.0/16]}}, "+
		"controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: "+n+"}}")
	i.controlled(t, n, older)
	i.report.took(t, begun, "a Cluster, from apply until its control plane is Available")
	i.answers(t, n, older)
	begun = time.Now()
	i.put(t, controlPlanes, n, spec(current))
	i.controlled(t, n, current)
	i.report.took(t, begun, "its upgrade from %s to %s", older, current)
	i.answers(t, n, current)
	begun = time.Now()
	i.deleted(t, clusters, n)
	i.gone(t, n)
	i.report.took(t, begun, "it is deleted, and its control plane with it")
}

// define defines the kinds of the provider, which Helm doesn't, until the step ends. The cluster had none of them (refuse).
func (i *installation) define(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(env.Root(), "deployments", "cluster-api", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		var o metav1.PartialObjectMetadata
		var body []byte
		if err == nil {
			body, err = yaml.YAMLToJSON(manifest)
		}
		if err == nil {
			err = json.Unmarshal(body, &o)
		}
		if err == nil {
			err = i.objects.ApplyRaw(t.Context(), kube.CustomResourceDefinitions, "", o.Name, body, nil)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Cleanup(func() {
			if _, err := i.objects.Delete(context.WithoutCancel(t.Context()), kube.CustomResourceDefinitions, "", o.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	poll.Nil(t, "the kinds to be served", func() error {
		_, err := i.objects.Metadata(t.Context(), controlPlanes, "")
		return err
	})
}

// controlled waits until Cluster API reads of the control plane of a Cluster that it is available and runs a version.
func (i *installation) controlled(t *testing.T, n, version string) {
	t.Helper()
	type conditions struct {
		Status struct {
			Version    string             `json:"version"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	poll.Nil(t, "the control plane of "+n, func() error {
		var of, plane conditions
		if err := i.objects.Get(t.Context(), controlPlanes, namespace, n, &plane); err != nil {
			return err
		}
		if err := i.objects.Get(t.Context(), clusters, namespace, n, &of); err != nil {
			return err
		}
		if plane.Status.Version == version && meta.IsStatusConditionTrue(of.Status.Conditions, "ControlPlaneAvailable") {
			return nil
		}
		return fmt.Errorf("of the control plane: %+v; of the Cluster: %+v", plane, of)
	})
}

// put is `kubectl apply` of an object, whose spec is YAML.
func (i *installation) put(t *testing.T, r kube.Resource, n, spec string) {
	t.Helper()
	if err := env.ApplySpec(t.Context(), i.objects, r, namespace, n, spec); err != nil {
		t.Fatal(err)
	}
}

// deleted deletes an object and waits until it is gone.
func (i *installation) deleted(t *testing.T, r kube.Resource, n string) {
	t.Helper()
	if _, err := i.objects.Delete(t.Context(), r, namespace, n, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Nil(t, r.Kind+" "+n+" to be gone", func() error {
		var o struct {
			Status any `json:"status"`
		}
		if err := i.objects.Get(t.Context(), r, namespace, n, &o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w: %+v", err, o.Status)
		}
		return nil
	})
}
