package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// limitedTenant is a tenant whose writes are limited, as its administrator sees it.
type limitedTenant struct {
	key        events.Key
	kubeconfig string
}

// writes are by what they would do, tried without effect: the administrator's, in namespace default but where it says otherwise.
var writes = map[string][]string{
	"create":                {"create", "configmap", "new", "--dry-run=server"},
	"update":                {"annotate", "configmap", "old", "a=b", "--overwrite", "--dry-run=server"},
	"delete":                {"delete", "configmap", "old", "--dry-run=server"},
	"create in kube-system": {"-n", "kube-system", "create", "configmap", "new", "--dry-run=server"},
	"update in kube-system": {"-n", "kube-system", "annotate", "configmap", "old", "a=b", "--overwrite", "--dry-run=server"},
	"delete in kube-system": {"-n", "kube-system", "delete", "configmap", "old", "--dry-run=server"},
	"renew a lease":         {"-n", "kube-node-lease", "annotate", "lease", "old", "a=b", "--overwrite", "--dry-run=server"},
	"delete a lease":        {"-n", "kube-node-lease", "delete", "lease", "old", "--dry-run=server"},
	"make a token":          {"create", "token", "default"},
	"review access":         {"auth", "can-i", "create", "pods", "--as", "somebody", "--as-group", "system:masters"},
}

// TestWritePermissions limits the writes of one tenant in one way after another, as its administrator notices; which requests of which
// users pass in detail is a test of the service addons.
func TestWritePermissions(t *testing.T) {
	env.Long(t, "services/addons shows which requests pass in a real API server (TestWritePermissions)")
	t.Setenv("STOKER_TENANT_METRICS", "true")
	e.NoServices(t)
	services := e.Services(t)
	defer e.NoServices(t)
	x := &limitedTenant{key: events.Tenant("default", "limited")}
	o := env.Tenant(x.key.Name, "v1.35.4")
	e.Apply(t, o)
	e.Ready(t, x.key)
	x.kubeconfig = e.Kubeconfig(t, x.key)
	x.prepare(t)
	x.tried(t, v1alpha1.Permissions{})

	for _, limits := range []v1alpha1.Permissions{
		{BlockCreation: true}, {BlockUpdate: true}, {BlockDeletion: true}, {BlockCreation: true, BlockUpdate: true},
		{BlockCreation: true, BlockUpdate: true, BlockDeletion: true},
	} {
		t.Run("blocked are "+limits.Blocked(), func(t *testing.T) {
			o.Spec.WritePermissions = limits
			e.Apply(t, o)
			x.shows(t, v1alpha1.VersionWriteLimited, limits.Blocked())
			x.tried(t, limits)
		})
	}
	t.Run("it is one of the tenant's columns and metrics", func(t *testing.T) {
		out := e.Kubectl(t, e.Local.Kubeconfig("admin"), "get", "tcp", x.key.Name)
		if !strings.Contains(out, "WriteLimited") {
			t.Error(out)
		}
		env.Eventually(t, "the metric", func() error {
			text, err := services[name.ServiceStatus].Metrics(t.Context())
			const want = `kamaji_tenant_control_plane_status{ready="true",status="WriteLimited",tcp_name="limited",tcp_namespace="default"} 1`
			if err == nil && !strings.Contains(text, want) {
				err = errNotYet
			}
			return err
		})
	})
	t.Run("leaders keep their Leases", func(t *testing.T) { x.leads(t) })
	t.Run("slices of endpoints follow pods, and no pods are made", func(t *testing.T) { x.goesOn(t) })
	t.Run("the policy, its binding and what is added to them are put right", func(t *testing.T) { x.survives(t) })
	t.Run("objects inside the tenant are put right", func(t *testing.T) {
		for _, what := range [][]string{
			{"-n", "kube-system", "deployment", "coredns"}, {"clusterrolebinding", "kubeadm:get-nodes"},
			{"-n", "kube-public", "configmap", "cluster-info"}, {"-n", "kube-public", "role", "kubeadm:bootstrap-signer-clusterinfo"},
		} {
			x.deletedComesBack(t, what...)
		}
	})
	t.Run("no pod was rolled out, and another version still can be", func(t *testing.T) {
		x.revision(t, "1")
		o.Spec.Kubernetes.Version = "v1.36.3"
		e.Apply(t, o)
		env.Eventually(t, "the version that runs", func() error {
			if runs := read(t, x.key).Status.Kubernetes.Version.Version; runs != o.Spec.Kubernetes.Version {
				return errors.New(runs)
			}
			return nil
		})
		x.shows(t, v1alpha1.VersionWriteLimited, o.Spec.WritePermissions.Blocked())
		x.tried(t, o.Spec.WritePermissions)
		x.leads(t)
		x.revision(t, "2")
	})
	t.Run("without limits all is written, and nothing is left of them", func(t *testing.T) {
		o.Spec.WritePermissions = v1alpha1.Permissions{}
		e.Apply(t, o)
		x.shows(t, v1alpha1.VersionReady, "")
		for _, r := range []kube.Resource{kube.ValidatingAdmissionPolicies, kube.ValidatingAdmissionPolicyBindings} {
			if out := e.Kubectl(t, x.kubeconfig, "get", r.Plural, "-o", "name"); strings.Contains(out, name.WritePermissions) {
				t.Error(out)
			}
		}
		x.tried(t, v1alpha1.Permissions{})
		x.revision(t, "2")
	})
	e.Delete(t, x.key)
	e.Gone(t, x.key)
	nothingLeft(t, x.key)
}

// prepare makes what is written later.
func (x *limitedTenant) prepare(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{"default", "kube-system"} {
		e.Kubectl(t, x.kubeconfig, "-n", namespace, "create", "configmap", "old")
	}
	const objects = `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: old, namespace: kube-node-lease}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Node
metadata: {name: old}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {nodeName: old, containers: [{name: web, image: web}], tolerations: [{operator: Exists}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: scaled, namespace: default}
spec:
  replicas: 0
  selector: {matchLabels: {app: scaled}}
  template: {metadata: {labels: {app: scaled}}, spec: {containers: [{name: web, image: web}]}}
`
	env.Eventually(t, "what takes the namespace's ServiceAccount", func() error {
		out, err := e.TryKubectl(t.Context(), x.kubeconfig, strings.NewReader(objects), "apply", "-f", "-")
		if err != nil {
			err = errors.New(out)
		}
		return err
	})
	env.Eventually(t, "a ReplicaSet", func() error {
		out, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, "get", "replicasets", "-o", "name")
		if err == nil && !strings.Contains(out, "scaled") {
			err = errNotYet
		}
		return err
	})
}

// shows waits until the tenant's status says so, and what is blocked.
func (x *limitedTenant) shows(t *testing.T, status v1alpha1.KubernetesVersionStatus, blocked string) {
	t.Helper()
	e.Ready(t, x.key)
	env.Eventually(t, string(status), func() error {
		got := read(t, x.key).Status
		c := meta.FindStatusCondition(got.Conditions, "WriteLimited")
		said := c == nil && blocked == "" || c != nil && blocked != "" && strings.HasPrefix(c.Message, blocked+" of")
		if s := got.Kubernetes.Version.Status; s == nil || *s != status || !said {
			return fmt.Errorf("%v %+v", s, c)
		}
		s, err := e.Status(t.Context(), x.key)
		if err == nil && (s.Phase != string(status) || !s.Ready) {
			err = fmt.Errorf("portals are told %s, Ready %t", s.Phase, s.Ready)
		}
		return err
	})
}

// tried waits until the API server goes by the limits, and fails when a write is refused that may not be, or for another reason.
func (x *limitedTenant) tried(t *testing.T, limits v1alpha1.Permissions) {
	t.Helper()
	refused := map[string]bool{
		"create": limits.BlockCreation, "update": limits.BlockUpdate, "delete": limits.BlockDeletion, "delete a lease": limits.Any(),
	}
	for what, args := range writes {
		env.Eventually(t, fmt.Sprintf("%s, refused %t", what, refused[what]), func() error {
			out, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, args...)
			if err != nil && !strings.Contains(out, "the provider of this cluster blocks these writes: ") {
				t.Fatal(what, out)
			}
			if (err != nil) != refused[what] {
				return fmt.Errorf("refused %t: %s", err != nil, out)
			}
			return nil
		})
	}
}

// leads waits until controller manager and scheduler have renewed their Leases.
func (x *limitedTenant) leads(t *testing.T) {
	t.Helper()
	for _, leader := range []string{"kube-controller-manager", "kube-scheduler"} {
		renewed := func() string {
			return e.Kubectl(t, x.kubeconfig, "-n", "kube-system", "get", "lease", leader, "-o", "jsonpath={.spec.renewTime}")
		}
		before := renewed()
		env.Eventually(t, leader+" to renew its Lease", func() error {
			if renewed() == before {
				return errNotYet
			}
			return nil
		})
	}
}

// goesOn has a pod become ready, which is told by a subresource, and a Deployment scaled, which is one, too.
func (x *limitedTenant) goesOn(t *testing.T) {
	t.Helper()
	e.Kubectl(t, x.kubeconfig, "patch", "pod", "web", "--subresource=status", "--type=merge", "-p",
		`{"status":{"phase":"Running","podIP":"10.244.0.9","podIPs":[{"ip":"10.244.0.9"}],"conditions":[{"type":"Ready","status":"True"}]}}`)
	env.Eventually(t, "the pod among the endpoints", func() error {
		out, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, "get", "endpointslices,endpoints", "-o", "yaml")
		if err == nil && strings.Count(out, "10.244.0.9") < 2 {
			err = errors.New(out)
		}
		return err
	})
	e.Kubectl(t, x.kubeconfig, "scale", "deployment", "scaled", "--replicas=1")
	x.sees(t, "1", "deployment", "scaled", "-o", "jsonpath={.spec.replicas}")
	if out := e.Kubectl(t, x.kubeconfig, "get", "pods", "-l", "app=scaled", "-o", "name"); out != "" {
		t.Error(out)
	}
}

// sees waits until kubectl get prints something.
func (x *limitedTenant) sees(t *testing.T, want string, args ...string) {
	t.Helper()
	env.Eventually(t, strings.Join(args, " ")+": "+want, func() error {
		out, err := e.TryKubectl(t.Context(), x.kubeconfig, nil, append([]string{"get"}, args...)...)
		if err == nil && strings.TrimSpace(out) != want {
			err = errors.New(out)
		}
		return err
	})
}

// survives does to the limits what an administrator can.
func (x *limitedTenant) survives(t *testing.T) {
	t.Helper()
	x.deletedComesBack(t, kube.ValidatingAdmissionPolicies.Plural, name.WritePermissions)
	x.deletedComesBack(t, kube.ValidatingAdmissionPolicyBindings.Plural, name.WritePermissions)
	e.Kubectl(t, x.kubeconfig, "patch", kube.ValidatingAdmissionPolicies.Plural, name.WritePermissions, "--type=merge", "-p",
		`{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`)
	x.sees(t, "", kube.ValidatingAdmissionPolicies.Plural, name.WritePermissions, "-o", "jsonpath={.spec.matchConditions}")
	x.tried(t, v1alpha1.Permissions{BlockCreation: true, BlockUpdate: true, BlockDeletion: true})
}

// deletedComesBack deletes an object inside the tenant and waits until there is another.
func (x *limitedTenant) deletedComesBack(t *testing.T, what ...string) {
	t.Helper()
	uid := func() (string, error) {
		return e.TryKubectl(t.Context(), x.kubeconfig, nil, append([]string{"get", "-o", "jsonpath={.metadata.uid}"}, what...)...)
	}
	before, err := uid()
	must(t, err)
	e.Kubectl(t, x.kubeconfig, append([]string{"delete"}, what...)...)
	env.Eventually(t, strings.Join(what, " ")+" again", func() error {
		if now, err := uid(); err != nil || now == before {
			return fmt.Errorf("%s %w", now, errNotYet)
		}
		return nil
	})
}

// revision checks how often the control plane has been rolled out.
func (x *limitedTenant) revision(t *testing.T, want string) {
	t.Helper()
	var d appsv1.Deployment
	get(t, kube.Deployments, x.key.Namespace, name.Deployment(x.key.Name), &d)
	if got := d.Annotations["deployment.kubernetes.io/revision"]; got != want {
		t.Errorf("revision %s, not %s", got, want)
	}
}
