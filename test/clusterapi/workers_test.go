package clusterapi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

var (
	deployments    = kube.Resource{GroupVersion: clusters.GroupVersion, Plural: "machinedeployments", Kind: "MachineDeployment", Namespaced: true}
	machines       = kube.Resource{GroupVersion: clusters.GroupVersion, Plural: "machines", Kind: "Machine", Namespaced: true}
	bootstrapGroup = schema.GroupVersion{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2"}
	configs        = kube.Resource{GroupVersion: bootstrapGroup, Plural: "kubeadmconfigtemplates", Kind: "KubeadmConfigTemplate", Namespaced: true}
	hosts          = kube.Resource{GroupVersion: infrastructures.GroupVersion, Plural: "kubevirtmachines", Kind: "KubevirtMachine", Namespaced: true}
	hostTemplates  = kube.Resource{GroupVersion: infrastructures.GroupVersion, Plural: "kubevirtmachinetemplates", Kind: "KubevirtMachineTemplate", Namespaced: true}
)

// installBootstrap installs the definitions and the rights of Cluster API's provider of bootstrap data by kubeadm, which are all that it may.
func installBootstrap(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bootstrap.yaml")
	writeObjects(t, file, slices.DeleteFunc(components(t, images.ClusterAPI, "bootstrap/kubeadm/config/default"), func(o map[string]any) bool {
		return slices.Contains([]any{"Deployment", "Service", "Certificate", "Issuer"}, o["kind"])
	}))
	e.Kubectl(t, e.Local.Kubeconfig("admin"), "apply", "--server-side", "--force-conflicts", "-f", file)
}

// startBootstrap starts that provider under its own account.
func startBootstrap(t *testing.T) {
	account := as(t, "capi-kubeadm-bootstrap-system", "capi-kubeadm-bootstrap-manager")
	e.Controller(t, filepath.Join(env.Built(t, images.ClusterAPI), "kubeadm-bootstrap"), account, env.WebhookFlags(t)...)
}

// workers has a Cluster get a machine, of which the test plays the infrastructure and the kubelet, and lose it. The bootstrap provider is installed.
func workers(t *testing.T, c cluster, version string) {
	startBootstrap(t)
	n := c.name + "-workers"
	put(t, configs, n, `spec: {template: {spec: {joinConfiguration: {nodeRegistration: {name: worker}}}}}`)
	put(t, hostTemplates, n, `spec: {template: {spec: {}}}`)
	put(t, deployments, n, fmt.Sprintf(`
spec:
  clusterName: %[1]s
  replicas: 1
  selector: {matchLabels: {pool: %[2]s}}
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}
  template:
    metadata: {labels: {pool: %[2]s, cluster.x-k8s.io/cluster-name: %[1]s}}
    spec:
      clusterName: %[1]s
      version: %[3]s
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: %[2]s}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: KubevirtMachineTemplate, name: %[2]s}`, c.name, n, version))
	machine := machineOf(t, n)
	join := secret(t, machine.Spec.Bootstrap.DataSecretName)
	at := controlPlane(t, c).Spec.ControlPlaneEndpoint
	if data := string(join.Data["value"]); !strings.Contains(data, fmt.Sprintf("%s:%d", at.Host, at.Port)) || !strings.Contains(data, "sha256:") {
		t.Errorf("a machine joins by\n%s", data)
	}
	provider := "kubevirt://" + machine.Name
	change(t, hosts, machine.Spec.InfrastructureRef.Name, `{"spec":{"providerID":"`+provider+`"}}`)
	provisioned := map[string]any{"initialization": map[string]any{"provisioned": true}, "addresses": []map[string]any{{"type": "InternalIP", "address": "192.0.2.10"}}}
	must(t, e.Admin.ApplyStatus(t.Context(), hosts, &read(t, hosts, machine.Spec.InfrastructureRef.Name).ObjectMeta, provisioned))
	inside := clientIn(t, c)
	node := &corev1.Node{TypeMeta: kube.Nodes.TypeMeta()}
	node.Name, node.Spec.ProviderID = machine.Name, provider
	must(t, inside.Create(t.Context(), kube.Nodes, node))
	env.Eventually(t, "the machine to be ready", func() error {
		must(t, inside.ApplyStatus(t.Context(), kube.Nodes, &node.ObjectMeta, map[string]any{"conditions": healthy()}))
		if o := read(t, deployments, n); o.Status.ReadyReplicas != 1 {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
	change(t, deployments, n, `{"spec":{"replicas":0}}`)
	env.Eventually(t, "the end of the machine and its node", func() error {
		var left corev1.NodeList
		must(t, inside.List(t.Context(), kube.Nodes, "", "", &left))
		if o := read(t, deployments, n); o.Status.Replicas > 0 || len(left.Items) > 0 {
			return fmt.Errorf("%+v, %d nodes", o.Status, len(left.Items))
		}
		return nil
	})
}

// healthy are the conditions by which a kubelet says that its node is alive. Without another heartbeat the controller manager takes
// the node for dead after 40 s.
func healthy() (conditions []map[string]any) {
	now := metav1.Now()
	for _, pressure := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		conditions = append(conditions, map[string]any{
			"type": pressure, "status": "False", "reason": "KubeletHasEnough", "message": "", "lastHeartbeatTime": now,
		})
	}
	return append(conditions, map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now})
}

// machineObject is what is read of a Machine.
type machineObject struct {
	object
	Spec struct {
		Bootstrap struct {
			DataSecretName string `json:"dataSecretName"`
		} `json:"bootstrap"`
		InfrastructureRef struct {
			Name string `json:"name"`
		} `json:"infrastructureRef"`
	} `json:"spec"`
}

// machineOf waits for the one machine of a pool that has what it joins by.
func machineOf(t *testing.T, pool string) (machine machineObject) {
	t.Helper()
	env.Eventually(t, "a machine that can join", func() error {
		var all struct{ Items []machineObject }
		must(t, e.Admin.List(t.Context(), machines, namespace, "pool="+pool, &all))
		if len(all.Items) != 1 || all.Items[0].Spec.Bootstrap.DataSecretName == "" || all.Items[0].Spec.InfrastructureRef.Name == "" {
			return fmt.Errorf("%+v", all.Items)
		}
		machine = all.Items[0]
		return nil
	})
	return machine
}

// clientIn is a client of the tenant, by the kubeconfig that Cluster API has.
func clientIn(t *testing.T, c cluster) *kube.Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, file, secret(t, c.name+"-kubeconfig").Data["value"])
	k, err := kube.Connect(file, kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	must(t, err)
	t.Cleanup(k.Close)
	return k
}
