package clusterapi

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// release is the version of Stoker's provider in the repository.
const release = "v0.1.0"

// TestClusterctl installs Stoker's provider beside Stoker's other services as its users do: from a repository, by clusterctl. What runs has
// the rights that clusterctl installed, and Cluster API's programs have those of their own manifests.
func TestClusterctl(t *testing.T) {
	t.Cleanup(func() { e.NoServices(t) })
	for _, service := range name.Services() {
		if service != name.ServiceCAPI {
			e.Service(t, service, "a")
		}
	}
	withoutCAPI(t)
	ctl := newClusterctl(t)
	ctl.run(t, "init", "--core=cluster-api:"+ctl.version, "--bootstrap=kubeadm:"+ctl.version, "--control-plane=stoker:"+release)
	t.Run("what is installed", func(t *testing.T) {
		var all struct{ Items []object }
		must(t, e.Admin.List(t.Context(), providers, name.SystemNamespace, "", &all))
		if len(all.Items) != 1 || all.Items[0].Name != "control-plane-stoker" {
			t.Errorf("%+v", all.Items)
		}
	})
	t.Run("another one beside it has the same rights, and objects of its own", func(t *testing.T) {
		t.Setenv("STOKER_CAPI_NAME", "stoker-capi-blue")
		var names []string
		for document := range strings.SplitSeq(ctl.run(t, "generate", "provider", "--control-plane=stoker:"+release), "\n---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
			}
			must(t, yaml.Unmarshal([]byte(document), &o))
			if strings.HasPrefix(o.Metadata.Name, "stoker-capi") {
				names = append(names, o.Kind+"/"+o.Metadata.Name)
			}
		}
		slices.Sort(names)
		want := []string{
			"ClusterRole/stoker-capi", "ClusterRole/stoker-capi-bootstrap", "ClusterRoleBinding/stoker-capi", "ClusterRoleBinding/stoker-capi-bootstrap",
			"Deployment/stoker-capi-blue", "PodDisruptionBudget/stoker-capi-blue", "Service/stoker-capi-blue", "ServiceAccount/stoker-capi",
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s, not %s", names, want)
		}
	})
	e.Core(t, images.ClusterAPI, as(t, "capi-system", "capi-manager"))
	runDeployment(t, name.SystemNamespace, "stoker-capi")

	c := cluster{name: "shelf", controlPlane: "shelf", infrastructure: "shelf"}
	t.Run("a Cluster from the template", func(t *testing.T) {
		ctl.apply(t, "generate", "cluster", c.name, "--from="+ctl.file("cluster-template.yaml"), "--kubernetes-version=v1.36.3", "--control-plane-machine-count=1")
		provision(t, c.infrastructure)
		c.available(t, "v1.36.3", 1)
		c.works(t)
		contractOfSecrets(t, c)
	})
	t.Run("clusterctl describe tells the conditions", func(t *testing.T) {
		out := ctl.run(t, "describe", "cluster", c.name, "-n", namespace, "--show-conditions=all")
		for _, condition := range []string{
			controlplane.ConditionTenantCreated, controlplane.ConditionAddressReady, controlplane.ConditionEndpointPatched,
			controlplane.ConditionInfrastructurePatched, controlplane.ConditionInitialized, controlplane.ConditionKubeadmResourcesCreated,
			controlplane.ConditionReady,
		} {
			if !strings.Contains(out, condition) {
				t.Errorf("no %s in\n%s", condition, out)
			}
		}
	})
	t.Run("clusterctl get kubeconfig", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		writeFile(t, file, []byte(ctl.run(t, "get", "kubeconfig", c.name, "-n", namespace)))
		if out := e.Kubectl(t, file, "get", "--raw", "/version"); !strings.Contains(out, "v1.36.3") {
			t.Error(out)
		}
	})
	t.Run("machines join, for the bootstrap provider may read the control plane", func(t *testing.T) { workers(t, c, "v1.36.3") })
	t.Run("a Cluster of the ClusterClass", func(t *testing.T) {
		ctl.apply(t, "generate", "yaml", "--from="+ctl.file("clusterclass-hosted.yaml"))
		ctl.apply(t, "generate", "cluster", "crate", "--from="+ctl.file("cluster-template-class.yaml"), "--kubernetes-version=v1.36.3", "--control-plane-machine-count=1")
		ofClass := ofTopology(t, "crate")
		ofClass.available(t, "v1.36.3", 1)
		scaled(t, ofClass)
		ofClass.gone(t)
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "delete", "-n", namespace, "--ignore-not-found", "clusterclass,kamajicontrolplanetemplate,kubevirtclustertemplate", "hosted")
	})
	c.gone(t)
	t.Run("a Cluster whose tenant is elsewhere is moved", func(t *testing.T) { ctl.moved(t) })
}

// moved moves a Cluster out of the management cluster, and into it again, as into another one: its objects are others then. clusterctl writes them
// into a directory; how it then deletes them is played.
func (c *clusterctl) moved(t *testing.T) {
	x := e.Elsewhere(t, "abroad")
	x.Secret(t, e, namespace, "abroad")
	of := place(t, "mover", x.Reference("abroad"), 1)
	ready := func(o *controlplane.KamajiControlPlane) bool {
		return is(o, controlplane.ConditionAvailable) && is(o, controlplane.ConditionExternalClientFound)
	}
	awaitControlPlane(t, of, "Available", ready)
	env.Eventually(t, "the Cluster to know", func() error {
		if o := read(t, clusters, of.name); !o.is("ControlPlaneInitialized") {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
	uid := controlPlane(t, of).UID
	before := remote(t, x, "kcp-"+string(uid))
	dir := t.TempDir()
	c.run(t, "move", "--to-directory="+dir, "-n", namespace)
	change(t, clusters, of.name, `{"spec":{"paused":true}}`)
	awaitControlPlane(t, of, "the pause", func(o *controlplane.KamajiControlPlane) bool { return is(o, controlplane.ConditionPaused) })
	for _, o := range []string{"secret/mover-kubeconfig", "secret/mover-ca", "kamajicontrolplane/mover", "cluster.cluster.x-k8s.io/mover"} {
		admin := e.Local.Kubeconfig("admin")
		e.Kubectl(t, admin, "patch", "-n", namespace, o, "--type=json",
			`-p=[{"op":"add","path":"/metadata/annotations","value":{"`+name.AnnotationDeleteForMove+`":""}}]`)
		e.Kubectl(t, admin, "delete", "-n", namespace, "--wait=false", o)
		_, _ = e.TryKubectl(t.Context(), admin, nil, "patch", "-n", namespace, o, "--type=merge", `-p={"metadata":{"finalizers":null}}`) // unless it is gone
	}
	awaitGone(t, clusters, namespace, of.name)
	awaitGone(t, controlPlanes, namespace, of.controlPlane)
	if o := remote(t, x, before.Name); o.UID != before.UID || o.DeletionTimestamp != nil {
		t.Fatalf("the tenant: %+v", o.ObjectMeta)
	}
	c.run(t, "move", "--from-directory="+dir, "-n", namespace)
	awaitControlPlane(t, of, "Available again", ready)
	if controlPlane(t, of).UID == uid {
		t.Error("it is the same object")
	}
	of.works(t)
	change(t, controlPlanes, of.controlPlane, `{"spec":{"scheduler":{"extraArgs":["--v=2"]}}}`)
	env.Eventually(t, "a change", func() error {
		o := remote(t, x, before.Name)
		if o.Spec.ControlPlane.Deployment.ExtraArgs == nil || o.UID != before.UID {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	_, err := e.Admin.Delete(t.Context(), clusters, namespace, of.name, metav1.DeleteOptions{})
	must(t, err)
	awaitGone(t, clusters, namespace, of.name)
	awaitGone(t, kube.TenantControlPlanes, x.Namespace, before.Name)
}

// withoutCAPI takes away what the installation under test has of capi already: its rights, but not its account, whose tokens would end. At
// the end they are as before, and what clusterctl installed is gone.
func withoutCAPI(t *testing.T) {
	admin := e.Local.Kubeconfig("admin")
	e.Kubectl(t, admin, "delete", "clusterrole/stoker-capi", "clusterrolebinding/stoker-capi", "clusterrole/stoker-capi-bootstrap",
		"clusterrolebinding/stoker-capi-bootstrap")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, args := range [][]string{
			{"delete", "--ignore-not-found", "-n", name.SystemNamespace, "deployment/stoker-capi", "service/stoker-capi", "poddisruptionbudget/stoker-capi",
				"providers.clusterctl.cluster.x-k8s.io/control-plane-stoker"},
			{"delete", "--ignore-not-found", "namespace/capi-system", "namespace/capi-kubeadm-bootstrap-system"},
			{"apply", "--server-side", "--force-conflicts", "-f", filepath.Join(env.Root(), "deployments", "rbac", "capi.yaml")},
		} {
			if out, err := e.TryKubectl(ctx, admin, nil, args...); err != nil {
				t.Errorf("%s: %v: %s", args, err, out)
			}
		}
	})
}

// clusterctl runs clusterctl as its users have it: with a configuration that knows local repositories.
type clusterctl struct {
	program, home string
	version       string // of Cluster API
	repository    string // of Stoker's provider
}

// newClusterctl lays out the repositories of Stoker's provider, by make, and of Cluster API's own.
func newClusterctl(t *testing.T) *clusterctl {
	t.Helper()
	e.Manifests(t, filepath.Join("testdata", "cert-manager"), filepath.Join("testdata", "infrastructure"))
	dir := env.Built(t, images.ClusterAPI)
	version, _ := images.Version(images.ClusterAPI)
	ctl := &clusterctl{program: filepath.Join(dir, "clusterctl"), home: t.TempDir(), version: version}
	ctl.repository = filepath.Join(ctl.home, "control-plane-stoker", release)
	makeIt := exec.CommandContext(t.Context(), "make", "clusterctl-repository", "DIR="+ctl.home, "TAG="+release)
	makeIt.Dir = env.Root()
	if out, err := makeIt.CombinedOutput(); err != nil {
		t.Fatalf("make: %v: %s", err, out)
	}
	metadata, err := os.ReadFile(filepath.Join(dir, images.Manifests, "metadata.yaml"))
	must(t, err)
	for label, p := range map[string]struct{ file, overlay string }{
		"cluster-api":       {"core-components.yaml", "core/config/default"},
		"bootstrap-kubeadm": {"bootstrap-components.yaml", "bootstrap/kubeadm/config/default"},
	} {
		writeObjects(t, filepath.Join(ctl.home, label, version, p.file), components(t, images.ClusterAPI, p.overlay))
		writeFile(t, filepath.Join(ctl.home, label, version, "metadata.yaml"), metadata)
	}
	provider := func(n, typ, label, version, file string) map[string]any {
		return map[string]any{"name": n, "type": typ, "url": filepath.Join(ctl.home, label, version, file)}
	}
	config, err := yaml.Marshal(map[string]any{
		"providers": []any{
			provider("cluster-api", "CoreProvider", "cluster-api", version, "core-components.yaml"),
			provider("kubeadm", "BootstrapProvider", "bootstrap-kubeadm", version, "bootstrap-components.yaml"),
			provider("stoker", "ControlPlaneProvider", "control-plane-stoker", release, "control-plane-components.yaml"),
		},
		"cert-manager":                map[string]any{"externallyProvisioned": "true"},
		"STOKER_CAPI_NATS":            e.Stack.Service(name.ServiceCAPI, "a").NATS,
		"STOKER_CAPI_STREAM_REPLICAS": "1",
		"STOKER_CAPI_NAMESPACE":       namespace,
		"STOKER_CAPI_FEATURE_GATES":   "ExternalClusterReference=true",
	})
	must(t, err)
	writeFile(t, filepath.Join(ctl.home, "clusterctl.yaml"), config)
	return ctl
}

// file is the path of a file of the provider's repository.
func (c *clusterctl) file(n string) string { return filepath.Join(c.repository, n) }

// run runs clusterctl against the management cluster and returns what it prints.
func (c *clusterctl) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.program, append(args, "--config="+filepath.Join(c.home, "clusterctl.yaml"))...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Local.Kubeconfig("admin"), "HOME="+c.home, "XDG_CONFIG_HOME="+c.home, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	var says strings.Builder
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("clusterctl %s: %v: %s", args, err, says.String())
	}
	return string(out)
}

// apply applies what clusterctl prints.
func (c *clusterctl) apply(t *testing.T, args ...string) {
	t.Helper()
	out, err := e.TryKubectl(t.Context(), e.Local.Kubeconfig("admin"), strings.NewReader(c.run(t, args...)), "apply", "-n", namespace, "-f", "-")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// providers are clusterctl's own record of what it installed.
var providers = kube.Resource{
	GroupVersion: schema.GroupVersion{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3"}, Plural: "providers", Kind: "Provider", Namespaced: true,
}

// runDeployment runs the container manager of a Deployment as a node would, of which there is none here that has in-cluster configuration: the program
// by its arguments and environment, under the Deployment's account, with the files of its Secret.
func runDeployment(t *testing.T, ns, n string) {
	t.Helper()
	var d appsv1.Deployment
	must(t, e.Admin.Get(t.Context(), kube.Deployments, ns, n, &d))
	pod := d.Spec.Template.Spec
	at := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "manager" })
	if at < 0 {
		t.Fatalf("no container manager: %+v", pod.Containers)
	}
	manager := pod.Containers[at]
	seed := e.Stack.Service(name.ServiceCAPI, "a").NATSSeed
	address := port.Address(t, "127.0.0.1")
	// cluster-api-operator would add these.
	args := append(manager.Args, "--health-addr="+address, "--v=1", "--leader-elect=true", "--leader-elect-lease-duration=15s", "--sync-period=600s", "--webhook-port=9443")
	cmd := exec.Command(filepath.Join(filepath.Dir(e.StokerBin()), "stoker-capi"), args...)
	cmd.Env = append(os.Environ(), "STOKER_HTTP=", "STOKER_KUBECONFIG="+as(t, ns, pod.ServiceAccountName), "GORACE=halt_on_error=1")
	for _, v := range manager.Env {
		switch {
		case v.Name == "STOKER_NATS_SEED":
			v.Value = seed
		case v.Name == "STOKER_NATS_CA": // the NATS server under test is without TLS
			continue
		case v.ValueFrom != nil:
			v.Value = n + "-0"
		}
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	e.Program(t, "capi-of-clusterctl", cmd)
	env.Eventually(t, "capi to be ready", func() error {
		asked, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+manager.ReadinessProbe.HTTPGet.Path, nil)
		must(t, err)
		answer, err := http.DefaultClient.Do(asked)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", answer.Status)
		}
		return nil
	})
}
