package clusterapi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestARemoteControlPlane has a control plane come down from a remote API, which is a tenant's here, to where its Cluster is.
func TestARemoteControlPlane(t *testing.T) {
	env.Long(t, "TestARemoteSource in test/intake shows a remote source, TestProvider a control plane")
	e.Manifests(t, filepath.Join(env.Root(), "deployments", "rbac-remote"))
	e.Services(t)
	key := events.Tenant(namespace, "remote")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	file := e.Kubeconfig(t, key)
	kubeconfig, err := os.ReadFile(file)
	must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	must(t, local.ApplyManifests(t.Context(), config, filepath.Join(env.Root(), "deployments", "crds"), filepath.Join(env.Root(), "deployments", "cluster-api", "crds")))
	there, err := kube.FromKubeconfig(kubeconfig, kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	must(t, err)
	t.Cleanup(there.Close)
	core(t)
	e.NoServices(t)
	for flag, value := range map[string]string{
		"KUBECONFIG": file, "SUFFIX": "-remote", "NAMESPACE_SUFFIX": "", "NAMESPACES": "true", "NAMESPACE_PREFIX": "",
		"SECRETS": "{name}-kubeconfig", "SECRET_RIGHTS": "create",
	} {
		t.Setenv("STOKER_REMOTE_"+flag, value)
	}
	t.Cleanup(func() { e.NoServices(t) })
	for _, service := range name.Services() {
		e.Service(t, service, "a")
	}

	const n = "shop-remote"
	body := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": %q, "namespace": %q, "labels": {"team": "a"}},
		"spec": {"version": "v1.36.3", "replicas": 1, "addons": {"coreDNS": {}}}}`, controlPlanes.GroupVersion, controlPlanes.Kind, n, namespace)
	must(t, there.ApplyRaw(t.Context(), controlPlanes, namespace, n, []byte(body), nil))
	awaitThere := func(what string, is func(*object) bool) {
		t.Helper()
		env.Eventually(t, what, func() error {
			o := &object{}
			if err := there.Get(t.Context(), controlPlanes, namespace, n, o); err != nil || is(o) {
				return err
			}
			return fmt.Errorf("%+v", o)
		})
	}
	c := cluster{name: "shop", controlPlane: "shop", infrastructure: "shop-infra"}
	env.Eventually(t, "it to come down", func() error {
		return e.Admin.Get(t.Context(), controlPlanes, namespace, c.controlPlane, &object{})
	})
	c.around(t)
	c.available(t, "v1.36.3", 1)
	c.works(t)
	t.Run("its status and its kubeconfig go up", func(t *testing.T) {
		awaitThere("the status", func(o *object) bool {
			return o.Status.Initialization.ControlPlaneInitialized && o.Status.Ready && o.Status.Version == "v1.36.3" && o.is("Available")
		})
		env.Eventually(t, "the kubeconfig", func() error {
			s := &corev1.Secret{}
			err := there.Get(t.Context(), kube.Secrets, namespace, "shop-kubeconfig-remote", s)
			if err == nil && (len(s.Data["value"]) == 0 || s.Type != name.SecretTypeClusterAPI) {
				err = fmt.Errorf("type %s", s.Type)
			}
			return err
		})
	})
	t.Run("what changes there comes down", func(t *testing.T) {
		must(t, there.MergePatch(t.Context(), controlPlanes, namespace, n, map[string]any{"spec": map[string]any{"replicas": 2}}, nil))
		c.available(t, "v1.36.3", 2)
		awaitThere("the replicas", func(o *object) bool { return o.Status.ReadyReplicas == 2 })
	})
	t.Run("deleted there, it is gone here with its tenant", func(t *testing.T) {
		_, err := there.Delete(t.Context(), controlPlanes, namespace, n, metav1.DeleteOptions{})
		must(t, err)
		env.Eventually(t, "its end there", func() error {
			err := there.Get(t.Context(), controlPlanes, namespace, n, &object{})
			if err == nil {
				return errors.New("it is there")
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		if exists(t, controlPlanes, c.controlPlane, &object{}) || exists(t, kube.TenantControlPlanes, c.controlPlane, &object{}) {
			t.Error("it went there before it was gone here")
		}
		c.gone(t)
	})
	e.Delete(t, key)
	e.Gone(t, key)
}
