package clusterapi

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

const namespace = "default"

var (
	clusters        = kube.Resource{GroupVersion: schema.GroupVersion{Group: "cluster.x-k8s.io", Version: "v1beta2"}, Plural: "clusters", Kind: "Cluster", Namespaced: true}
	infrastructures = kube.Resource{GroupVersion: schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}, Plural: "kubevirtclusters", Kind: "KubevirtCluster", Namespaced: true}
	controlPlanes   = kube.Resource{GroupVersion: schema.GroupVersion{Group: "controlplane.cluster.x-k8s.io", Version: "v1alpha2"}, Plural: "kamajicontrolplanes", Kind: "KamajiControlPlane", Namespaced: true}
)

// cluster is a Cluster of Cluster API and what belongs to it, of which tests read parts.
type cluster struct {
	name string
	// controlPlane is the name of its KamajiControlPlane, and of its tenant; infrastructure that of its infrastructure cluster.
	controlPlane, infrastructure string
}

// object is what tests read of objects of Cluster API and its providers.
type object struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ControlPlaneEndpoint struct {
			Host string `json:"host"`
			Port int32  `json:"port"`
		} `json:"controlPlaneEndpoint"`
	} `json:"spec"`
	Status struct {
		Initialization struct {
			ControlPlaneInitialized bool `json:"controlPlaneInitialized"`
		} `json:"initialization"`
		Ready             bool               `json:"ready"`
		Version           string             `json:"version"`
		Replicas          int32              `json:"replicas"`
		ReadyReplicas     int32              `json:"readyReplicas"`
		AvailableReplicas int32              `json:"availableReplicas"`
		UpToDateReplicas  int32              `json:"upToDateReplicas"`
		Conditions        []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// is reports whether a condition is True.
func (o *object) is(condition string) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == condition {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// make writes a Cluster, its infrastructure, which is provisioned, and its control plane of one replica.
func (c cluster) make(t testing.TB, version string) {
	t.Helper()
	put(t, controlPlanes, c.controlPlane, `
metadata: {labels: {team: a}, annotations: {team.example/note: kept}}
spec:
  version: `+version+`
  replicas: 1
  network: {serviceType: LoadBalancer}
  addons: {coreDNS: {}}`)
	c.around(t)
}

// around writes a Cluster, and its infrastructure, which is provisioned.
func (c cluster) around(t testing.TB) {
	t.Helper()
	put(t, infrastructures, c.infrastructure, `
metadata: {annotations: {cluster.x-k8s.io/managed-by: kamaji}}
spec: {}`)
	put(t, clusters, c.name, fmt.Sprintf(`
spec:
  clusterNetwork: {services: {cidrBlocks: [10.96.0.0/16]}, pods: {cidrBlocks: [10.244.0.0/16]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: KubevirtCluster, name: %s}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: %s}`, c.infrastructure, c.controlPlane))
	provision(t, c.infrastructure)
}

// provision says of an infrastructure cluster that it is there, as its provider would.
func provision(t testing.TB, name string) {
	t.Helper()
	provisioned := map[string]any{"initialization": map[string]any{"provisioned": true}}
	must(t, e.Admin.ApplyStatus(t.Context(), infrastructures, &read(t, infrastructures, name).ObjectMeta, provisioned))
}

// fromClass writes a Cluster of the ClusterClass of testdata, whose infrastructure is provisioned once it is there.
func fromClass(t testing.TB, name, version string) cluster {
	t.Helper()
	put(t, clusters, name, `
spec:
  topology:
    classRef: {name: hosted}
    version: `+version+`
    controlPlane: {replicas: 1, metadata: {labels: {team: b}}}
    variables: [{name: schedulerVerbosity, value: 2}]`)
	return ofTopology(t, name)
}

// ofTopology waits for what Cluster API makes of a Cluster with a topology, and says that its infrastructure is provisioned.
func ofTopology(t testing.TB, name string) cluster {
	t.Helper()
	made := func(r kube.Resource) (made string) {
		env.Eventually(t, r.Kind+" of "+name, func() error {
			var all struct{ Items []object }
			if err := e.Admin.List(t.Context(), r, namespace, "cluster.x-k8s.io/cluster-name="+name, &all); err != nil || len(all.Items) != 1 {
				return fmt.Errorf("%d, %w", len(all.Items), err)
			}
			made = all.Items[0].Name
			return nil
		})
		return made
	}
	c := cluster{name: name, infrastructure: made(infrastructures)}
	provision(t, c.infrastructure)
	c.controlPlane = made(controlPlanes)
	return c
}

// put applies an object, whose kind and name are added.
func put(t testing.TB, r kube.Resource, name, manifest string) {
	t.Helper()
	o := map[string]any{}
	must(t, yaml.Unmarshal([]byte(manifest), &o))
	o["apiVersion"], o["kind"] = r.GroupVersion.String(), r.Kind
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], meta["namespace"] = name, namespace
	o["metadata"] = meta
	body, err := json.Marshal(o)
	must(t, err)
	must(t, e.Admin.ApplyRaw(t.Context(), r, namespace, name, body, nil))
}

// key of the tenant.
func (c cluster) key() events.Key { return events.Tenant(namespace, c.controlPlane) }

// read reads one of the Cluster's objects.
func read(t testing.TB, r kube.Resource, name string) *object {
	t.Helper()
	var o object
	must(t, e.Admin.Get(t.Context(), r, namespace, name, &o))
	return &o
}

// change changes an object by a merge patch, as JSON.
func change(t testing.TB, r kube.Resource, name, patch string) {
	t.Helper()
	must(t, e.Admin.MergePatch(t.Context(), r, namespace, name, json.RawMessage(patch), nil))
}

// available waits until the Cluster's control plane runs a version with so many replicas, and Cluster API knows.
func (c cluster) available(t testing.TB, version string, replicas int32) {
	t.Helper()
	env.Eventually(t, "control plane of "+c.name, func() error {
		kcp, of := read(t, controlPlanes, c.controlPlane), read(t, clusters, c.name)
		s := kcp.Status
		if s.Initialization.ControlPlaneInitialized && s.Ready && s.Version == version && s.Replicas == replicas && s.ReadyReplicas == replicas &&
			s.AvailableReplicas == replicas && s.UpToDateReplicas == replicas && kcp.is("Available") && of.is("ControlPlaneAvailable") && of.is("Available") &&
			of.Spec.ControlPlaneEndpoint.Host != "" {
			return nil
		}
		return fmt.Errorf("control plane %+v; cluster %+v", kcp.Status, of.Status)
	})
}

// works asks the tenant's API by the kubeconfig that Cluster API has.
func (c cluster) works(t testing.TB) {
	t.Helper()
	file := t.TempDir() + "/kubeconfig"
	env.Eventually(t, "the kubeconfig of "+c.name, func() error {
		var secret corev1.Secret
		if err := e.Admin.Get(t.Context(), kube.Secrets, namespace, c.name+"-kubeconfig", &secret); err != nil {
			return err
		}
		writeFile(t, file, secret.Data["value"])
		out, err := e.TryKubectl(t.Context(), file, nil, "get", "namespaces", "-o", "name")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// gone deletes the Cluster and waits until nothing of it is left.
func (c cluster) gone(t testing.TB) {
	t.Helper()
	_, err := e.Admin.Delete(t.Context(), clusters, namespace, c.name, metav1.DeleteOptions{})
	must(t, err)
	c.away(t)
}

// away waits until nothing is left of a Cluster that is deleted.
func (c cluster) away(t testing.TB) {
	t.Helper()
	for _, o := range []struct {
		resource kube.Resource
		name     string
	}{
		{clusters, c.name}, {controlPlanes, c.controlPlane}, {infrastructures, c.infrastructure}, {kube.TenantControlPlanes, c.controlPlane},
		{kube.Secrets, c.name + "-kubeconfig"}, {kube.Secrets, c.name + "-ca"},
	} {
		awaitGone(t, o.resource, namespace, o.name)
	}
	e.Gone(t, c.key())
}

// exists reads an object, and reports whether it is there.
func exists(t testing.TB, r kube.Resource, name string, out any) bool {
	t.Helper()
	err := e.Admin.Get(t.Context(), r, namespace, name, out)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}
