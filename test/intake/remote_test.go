package intake

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// The remote API is the same server here, and its objects are told from local ones by suffixes.
func TestARemoteSource(t *testing.T) {
	e.Manifests(t, filepath.Join(env.Root(), "deployments", "rbac-remote"))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	admin, err := os.ReadFile(e.Local.Kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	admin = inside(t, admin)
	if err := os.WriteFile(kubeconfig, admin, 0o600); err != nil {
		t.Fatal(err)
	}
	e.NoServices(t)
	for flag, value := range map[string]string{
		"KUBECONFIG": kubeconfig, "SUFFIX": "-remote", "NAMESPACE_SUFFIX": "-local", "NAMESPACES": "true", "SECRETS": "{name}-admin-kubeconfig",
		"SECRET_RIGHTS": "create,watch", "NAMESPACE_PREFIX": "",
	} {
		t.Setenv("STOKER_REMOTE_"+flag, value)
	}
	t.Cleanup(func() { e.NoServices(t) })
	intake := e.Service(t, name.ServiceIntake, "a")
	ns := &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: "mirrored"}}
	if err := e.Admin.Create(t.Context(), kube.Namespaces, ns); err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: env.JSON(t, env.Tenant("demo-remote", "v1.36.3"))}
	delete(o.Object, "status")
	o.SetNamespace("mirrored")
	o.SetGroupVersionKind(kube.TenantControlPlanes.GroupVersion.WithKind(kube.TenantControlPlanes.Kind))
	if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, o); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"kube-mirrored", "kube-mirrored-local"} {
		if err := e.Admin.Create(t.Context(), kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			t.Fatal(err)
		}
	}
	forbidden := o.DeepCopy()
	forbidden.SetResourceVersion("")
	forbidden.SetUID("")
	forbidden.SetNamespace("kube-mirrored")
	if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, forbidden); err != nil {
		t.Fatal(err)
	}
	local := awaitObject(t, "mirrored-local", "demo", func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) > 0 })
	endpoint := func(o *unstructured.Unstructured) string {
		s, _, _ := unstructured.NestedString(o.Object, "status", "controlPlaneEndpoint")
		return s
	}
	tell := func(value string) {
		t.Helper()
		if err := e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, "mirrored-local", "demo", map[string]any{
			"status": map[string]any{"controlPlaneEndpoint": value},
		}, nil, "status"); err != nil {
			t.Fatal(err)
		}
		awaitObject(t, "mirrored", "demo-remote", func(o *unstructured.Unstructured) bool { return endpoint(o) == value })
	}
	tell("192.0.2.1:6443")
	secret := &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), Data: map[string][]byte{"admin.conf": []byte("x")}, ObjectMeta: metav1.ObjectMeta{
			Namespace: "mirrored-local", Name: "demo-admin-kubeconfig",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(local, local.GroupVersionKind())},
		},
	}
	if err := e.Admin.Create(t.Context(), kube.Secrets, secret); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the Secret up", func() error {
		return e.Admin.Get(t.Context(), kube.Secrets, "mirrored", "demo-admin-kubeconfig-remote", &corev1.Secret{})
	})
	t.Run("another kubeconfig is read", func(t *testing.T) {
		if err := os.WriteFile(kubeconfig, append(slices.Clone(admin), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		tell("192.0.2.2:6443")
		env.Eventually(t, "the log says so", func() error {
			log, err := os.ReadFile(intake.Log())
			if err == nil && !bytes.Contains(log, []byte("kubeconfig has changed")) {
				err = errors.New("not yet")
			}
			return err
		})
		tell("192.0.2.3:6443")
	})
	err = e.Admin.Get(t.Context(), kube.TenantControlPlanes, "kube-mirrored-local", "demo", &metav1.PartialObjectMetadata{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("in a forbidden namespace: %v", err)
	}
	metrics, err := intake.Metrics(t.Context())
	if err != nil || !strings.Contains(metrics, `stoker_mirror_up{service="intake",side="remote"} 1`) ||
		!strings.Contains(metrics, `stoker_mirror_objects{kind="TenantControlPlane",service="intake",state="synced"} 1`) {
		t.Errorf("%v in metrics\n%s", err, metrics)
	}
	if _, err := e.Admin.Delete(t.Context(), kube.TenantControlPlanes, "mirrored", "demo-remote", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitObject(t, "mirrored-local", "demo", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	there := awaitObject(t, "mirrored", "demo-remote", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	if !slices.Contains(there.GetFinalizers(), name.Mirror(name.MirrorDomain).Finalizer) {
		t.Errorf("the remote object isn't held until the local one is gone: %v", there.GetFinalizers())
	}
}

// inside is a kubeconfig without files, as one from a Secret is.
func inside(t *testing.T, kubeconfig []byte) []byte {
	t.Helper()
	config, err := clientcmd.Load(kubeconfig)
	if err == nil {
		err = clientcmdapi.FlattenConfig(config)
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func awaitObject(t *testing.T, namespace, n string, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	env.Eventually(t, n, func() error {
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, namespace, n, o); err != nil {
			return err
		}
		if !is(o) {
			return fmt.Errorf("%v", o.Object)
		}
		return nil
	})
	return o
}
