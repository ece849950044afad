package rules

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/services/workload"
)

// TestControlPlanesPassRestricted has an API server check the pods of control planes on all drivers where only those of the Pod
// Security level restricted may be.
func TestControlPlanesPassRestricted(t *testing.T) {
	const namespace = "restricted"
	_, c := admin(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Which nobody else makes here.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := c.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(t *testing.T, patch string, driver v1alpha1.Driver) (*corev1.Pod, error) {
		t.Helper()
		var tcp v1alpha1.TenantControlPlane
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(ruletest.Object(v1alpha1.TenantControlPlaneKind, patch), &tcp); err != nil {
			t.Fatal(err)
		}
		tcp.Namespace, tcp.UID = namespace, "5e1b8c1e-7f3a-4f57-9d38-0d3f8e0b7a11"
		v1alpha1.Default(&tcp)
		template := workload.Deployment(workload.Input{
			Subject:   workload.Subject{UID: string(tcp.UID), Tenant: &state.Tenant{Namespace: tcp.Namespace, Name: tcp.Name, Spec: tcp.Spec}},
			Advertise: "192.0.2.1",
			Datastore: state.Datastore{
				DataStore: "a", Driver: string(driver), Schema: "a", Endpoints: []string{"a:1"},
				Certificate: state.Secret{Keys: []string{name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey}},
			},
		}).Spec.Template
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name = "demo"
		return c.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	for _, driver := range []v1alpha1.Driver{v1alpha1.DriverEtcd, v1alpha1.DriverPostgreSQL, v1alpha1.DriverMySQL, v1alpha1.DriverNATS} {
		for what, patch := range map[string]string{
			"the smallest":                       `{}`,
			"at a port that only root has":       `spec: {networkProfile: {port: 443}}`,
			"as another user":                    deployment(`podSecurityContext: {runAsUser: 1000, fsGroup: 1000}`),
			"with a field of a security context": deployment(`containerSecurityContexts: {apiServer: {readOnlyRootFilesystem: true}, kine: {runAsUser: 1000}}`),
		} {
			t.Run(string(driver)+"/"+what, func(t *testing.T) {
				pod, err := create(t, patch, driver)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range pod.Spec.Volumes {
					for _, s := range projections(v) {
						if s.ServiceAccountToken != nil {
							t.Errorf("volume %s has a token of the management cluster", v.Name)
						}
					}
				}
			})
		}
	}
	t.Run("what the level forbids doesn't pass", func(t *testing.T) {
		_, err := create(t, deployment(`containerSecurityContexts: {apiServer: {runAsUser: 0}}`), v1alpha1.DriverEtcd)
		if !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	})
}

func projections(v corev1.Volume) []corev1.VolumeProjection {
	if v.Projected == nil {
		return nil
	}
	return v.Projected.Sources
}
