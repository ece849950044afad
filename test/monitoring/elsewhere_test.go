package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestAlertsAboutOtherClusters is [TestAlerts] for what an installation may do without: other clusters, a remote source, and TenantAddons.
func TestAlertsAboutOtherClusters(t *testing.T) {
	env.Long(t, "TestEachAlertIsUnitTested in tools/monitoring evaluates each rule on series; this test waits for each to fire and to end")
	crds := filepath.Join(images.Manifests, "core", "config", "crd", "bases")
	e.Manifests(t, filepath.Join(env.Root(), "deployments", "cluster-api", "crds"), filepath.Join(env.Built(t, images.ClusterAPI), crds),
		filepath.Join(env.Root(), "deployments", "rbac-remote"))
	t.Setenv("STOKER_FEATURE_GATES", env.ExternalGates)
	remote := follow(t)
	m := start(t, hurried(t))

	m.see(t, alert{"StokerMirrorFailing", "away"}, "the way to the remote API is a black hole", func(t *testing.T) func() {
		m.number(t, `stoker_mirror_up{side="remote"}`, 1)
		remote.Hole(true)
		return func() { remote.Hole(false) }
	})
	m.see(t, alert{"StokerMirrorFailing", "objects"}, "a remote object, and a local one under its name that wasn't made from it", func(t *testing.T) func() {
		apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: mirrored}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: mirrored-local}")
		for namespace, n := range map[string]string{"mirrored-local": "demo", "mirrored": "demo-remote"} {
			o := env.Tenant(n, "v1.36.3")
			o.Namespace = namespace
			must(t, e.Admin.Create(t.Context(), kube.TenantControlPlanes, o))
		}
		return func() {
			for namespace, n := range map[string]string{"mirrored": "demo-remote", "mirrored-local": "demo"} {
				_, err := e.Admin.Delete(t.Context(), kube.TenantControlPlanes, namespace, n, metav1.DeleteOptions{})
				must(t, err)
			}
		}
	})
	m.see(t, alert{"StokerExternalClusterAway", ""}, "the way to an external cluster is a black hole", func(t *testing.T) func() {
		x := e.Elsewhere(t, "elsewhere")
		x.Secret(t, e, metav1.NamespaceDefault, "elsewhere")
		apply(t, fmt.Sprintf(placed, x.Reference("elsewhere")))
		m.number(t, "stoker_capi_external_cluster_up", 1)
		x.Link.Hole(true)
		return func() { x.Link.Hole(false) }
	})

	tenants := []events.Key{create(t, "first"), create(t, "second")}
	for _, key := range tenants {
		e.Ready(t, key)
	}
	m.see(t, alert{"StokerTenantAddonFailing", "stopped"}, "a TenantAddon with an object that tenants refuse", func(t *testing.T) func() {
		apply(t, fmt.Sprintf(refusedThere, 0))
		return nil
	})
	m.see(t, alert{"StokerTenantAddonFailing", "failed"}, "the same with `maxFailures: 2`", func(t *testing.T) func() {
		apply(t, fmt.Sprintf(refusedThere, 2))
		return func() { kubectl(t, "delete", "tenantaddon", "refused") }
	})
	m.see(t, alert{"StokerTenantAddonFailing", "invalid"}, "a TenantAddon whose chart is nowhere", func(t *testing.T) func() {
		apply(t, absent)
		return func() { kubectl(t, "delete", "tenantaddon", "absent") }
	})
	for _, key := range tenants {
		remove(t, key)
	}
}

const (
	// placed is a control plane in another cluster.
	placed = `
apiVersion: controlplane.cluster.x-k8s.io/v1alpha1
kind: KamajiControlPlane
metadata: {name: far, namespace: default, labels: {cluster.x-k8s.io/cluster-name: far}}
spec: {version: v1.36.3, replicas: 0, deployment: {externalClusterReference: %s}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: far, namespace: default}
spec:
  clusterNetwork: {services: {cidrBlocks: [10.96.0.0/16]}, pods: {cidrBlocks: [10.244.0.0/16]}}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: far}
`
	// refusedThere is a TenantAddon with a ConfigMap that has a key which none may have.
	refusedThere = `
apiVersion: stoker.dev/v1alpha1
kind: TenantAddon
metadata: {name: refused, namespace: default}
spec:
  selector: {}
  rollout: {maxParallel: 1, maxFailures: %d}
  manifests:
    inline: |
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: words}
      data: {"no key?": x}
`
	absent = `
apiVersion: stoker.dev/v1alpha1
kind: TenantAddon
metadata: {name: absent, namespace: default}
spec:
  selector: {}
  chart: {repository: "http://127.0.0.1:1", name: absent, version: 1.0.0}
`
)

// follow has services that are started from now on follow a remote API: the management cluster's own, whose objects are told from local ones
// by suffixes.
func follow(t *testing.T) *env.Link {
	t.Helper()
	kubectl(t, "create", "serviceaccount", "remote")
	kubectl(t, "create", "clusterrolebinding", "remote", "--clusterrole=cluster-admin", "--serviceaccount=default:remote")
	kubeconfig, link := env.Through(t, e.Local.Kubeconfig("admin"), strings.TrimSpace(kubectl(t, "create", "token", "remote")))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, kubeconfig, 0o600))
	for flag, value := range map[string]string{"KUBECONFIG": file, "SUFFIX": "-remote", "NAMESPACE_SUFFIX": "-local", "NAMESPACES": "true"} {
		t.Setenv("STOKER_REMOTE_"+flag, value)
	}
	return link
}

// apply applies objects to the management cluster.
func apply(t *testing.T, manifests string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	must(t, os.WriteFile(file, []byte(manifests), 0o600))
	kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", file)
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return e.Kubectl(t, e.Local.Kubeconfig("admin"), args...)
}
