package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestATenantOfOneNamespace runs the services for one namespace, with roles for it alone, where only pods of the Pod Security level
// restricted may be: a tenant becomes Ready and goes.
func TestATenantOfOneNamespace(t *testing.T) {
	e.NoServices(t)
	const namespace = "tenants" // as in deployments/rbac-namespace
	admin := e.Local.Kubeconfig("admin")
	e.Kubectl(t, admin, "create", "namespace", namespace)
	e.Kubectl(t, admin, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	rbac := filepath.Join(env.Root(), "deployments", "rbac")
	apply := func(dir string) { e.Kubectl(t, admin, "apply", "--server-side", "--force-conflicts", "-f", dir) }
	apply(rbac + "-namespace")
	t.Setenv("STOKER_NAMESPACE", namespace)
	e.Services(t)
	defer func() {
		e.NoServices(t)
		apply(rbac)
		e.Kubectl(t, admin, "delete", "namespace", namespace)
	}()
	key := events.Tenant(namespace, "alone")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Namespace = namespace
	e.Apply(t, o)
	e.Ready(t, key)
	e.Delete(t, key)
	e.Gone(t, key)
}
