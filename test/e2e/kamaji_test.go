package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// kamajiStatus are the fields of a tenant's status that Kamaji shows of one on etcd with a load balancer and without konnectivity.
var kamajiStatus = []string{
	"observedGeneration", "controlPlaneEndpoint",
	"storage.driver", "storage.dataStoreName", "storage.config.secretName", "storage.config.checksum", "storage.setup.schema", "storage.setup.user",
	"storage.setup.lastUpdate", "storage.setup.checksum", "storage.certificate.secretName", "storage.certificate.checksum",
	"storage.certificate.lastUpdate",
	"certificates.ca.secretName", "certificates.ca.lastUpdate", "certificates.ca.checksum", "certificates.apiServer.secretName",
	"certificates.apiServerKubeletClient.secretName", "certificates.frontProxyCA.secretName", "certificates.frontProxyClient.secretName",
	"certificates.sa.secretName", "certificates.sa.checksum",
	"kubeconfig.admin.secretName", "kubeconfig.admin.checksum", "kubeconfig.controllerManager.secretName", "kubeconfig.scheduler.secretName",
	"kubernetesResources.version.version", "kubernetesResources.version.status",
	"kubernetesResources.deployment.selector", "kubernetesResources.deployment.name", "kubernetesResources.deployment.namespace",
	"kubernetesResources.deployment.lastUpdate", "kubernetesResources.deployment.replicas", "kubernetesResources.deployment.readyReplicas",
	"kubernetesResources.deployment.updatedReplicas", "kubernetesResources.deployment.availableReplicas",
	"kubernetesResources.deployment.observedGeneration", "kubernetesResources.deployment.conditions",
	"kubernetesResources.service.name", "kubernetesResources.service.namespace", "kubernetesResources.service.port",
	"kubernetesResources.service.loadBalancer.ingress",
	"kubeadmconfig.configmapName", "kubeadmconfig.lastUpdate", "kubeadmconfig.checksum",
	"kubeadmPhase.bootstrapToken.checksum", "kubeadmPhase.bootstrapToken.lastUpdate",
	"addons.coreDNS.enabled", "addons.coreDNS.lastUpdate", "addons.kubeProxy.enabled", "addons.konnectivity.enabled",
}

// TestKamajisUsers holds what Kamaji's users read against a real tenant: its status, the ConfigMap of kubeadm's configuration, kubectl's
// columns; and what they ask for by annotations.
func TestKamajisUsers(t *testing.T) {
	e.Services(t)
	key, admin := events.Tenant("default", "moved"), e.Local.Kubeconfig("admin")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.Addons.KubeProxy = nil
	e.Apply(t, o)
	e.Ready(t, key)

	t.Run("the status has Kamaji's fields", func(t *testing.T) {
		var live unstructured.Unstructured
		get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &live)
		for _, field := range kamajiStatus {
			if _, there, err := unstructured.NestedFieldNoCopy(live.Object, strings.Split("status."+field, ".")...); !there || err != nil {
				t.Errorf("%s is missing: %v", field, err)
			}
		}
		for field, want := range map[string]bool{"coreDNS": true, "kubeProxy": false, "konnectivity": false} {
			if got, _, _ := unstructured.NestedBool(live.Object, "status", "addons", field, "enabled"); got != want {
				t.Errorf("addons.%s.enabled is %t", field, got)
			}
		}
	})
	t.Run("Deployment and Service are shown as they are, the latter without ports", func(t *testing.T) {
		env.Eventually(t, "the status to show them", func() error {
			var tcp v1alpha1.TenantControlPlane
			var deployment appsv1.Deployment
			var service corev1.Service
			get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &tcp)
			get(t, kube.Deployments, key.Namespace, name.Deployment(key.Name), &deployment)
			get(t, kube.Services, key.Namespace, name.Service(key.Name), &service)
			for i := range service.Status.LoadBalancer.Ingress {
				service.Status.LoadBalancer.Ingress[i].Ports = nil
			}
			shown, is := tcp.Status.Kubernetes.Deployment.DeploymentStatus, deployment.Status
			for _, of := range [][]appsv1.DeploymentCondition{shown.Conditions, is.Conditions} {
				slices.SortFunc(of, func(a, b appsv1.DeploymentCondition) int { return cmp.Compare(a.Type, b.Type) })
			}
			shown.TerminatingReplicas, is.TerminatingReplicas = nil, nil // pods that are ending aren't counted
			if !shownAs(shown, is) || !shownAs(tcp.Status.Kubernetes.Service.ServiceStatus, service.Status) {
				return errors.New("not yet: " + string(event.Marshal(tcp.Status.Kubernetes)) + " of " + string(event.Marshal(deployment.Status)))
			}
			return nil
		})
	})
	t.Run("the ConfigMap is in kubeadm's own types, and comes back", func(t *testing.T) { kubeadmConfig(t, key) })
	t.Run("kubectl has Kamaji's columns", func(t *testing.T) {
		for of, want := range map[string]string{
			"tcp":       "NAME VERSION INSTALLED VERSION STATUS CONTROL-PLANE ENDPOINT KUBECONFIG DATASTORE AGE",
			"datastore": "NAME DRIVER READY AGE",
		} {
			header, _, _ := strings.Cut(e.Kubectl(t, admin, "get", of, "-n", key.Namespace), "\n")
			if got := strings.Join(strings.Fields(header), " "); got != want {
				t.Errorf("get %s: %s", of, got)
			}
		}
	})
	t.Run("a rotation of the DataStore's certificate rolls out once, and the tenant stays as it was", func(t *testing.T) { rotated(t, key) })
	t.Run("what has no effect is accepted with a warning", func(t *testing.T) {
		manifest := `{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"TenantControlPlane","metadata":{"name":"warned","namespace":"default",
"annotations":{"kamaji.clastix.io/migration-timeout":"10m"}},"spec":{"controlPlane":{"deployment":{"containerSecurityContexts":{"kineInit":
{"readOnlyRootFilesystem":true}}},"service":{"serviceType":"ClusterIP"}},"kubernetes":{"version":"v1.36.3","kubelet":{}}}}`
		env.Eventually(t, "the policy to be looked at", func() error {
			out, err := e.TryKubectl(t.Context(), admin, strings.NewReader(manifest), "apply", "--dry-run=server", "-f", "-")
			if err == nil && (!strings.Contains(out, "kineInit has no effect") || strings.Contains(out, "migration-timeout")) {
				err = errors.New(out)
			}
			return err
		})
	})
	e.Delete(t, key)
	e.Gone(t, key)
	env.Eventually(t, "the ConfigMap to be gone", func() error {
		if out, err := e.TryKubectl(t.Context(), admin, nil, "-n", key.Namespace, "get", "cm", name.KubeadmConfig(key.Name)); err == nil {
			return errors.New(out)
		}
		return nil
	})
}

// shownAs compares as the API shows things: an empty list is none.
func shownAs(a, b any) bool { return bytes.Equal(event.Marshal(a), event.Marshal(b)) }

func kubeadmConfig(t *testing.T, key events.Key) {
	t.Helper()
	var tcp v1alpha1.TenantControlPlane
	var made corev1.ConfigMap
	get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &tcp)
	get(t, kube.ConfigMaps, key.Namespace, name.KubeadmConfig(key.Name), &made)
	var cluster kubeadmapi.ClusterConfiguration
	var local kubeadmapi.InitConfiguration
	for of, into := range map[string]any{name.KeyClusterConfiguration: &cluster, name.KeyInitConfiguration: &local} {
		d := json.NewDecoder(strings.NewReader(made.Data[of]))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
	if cluster.ControlPlaneEndpoint != tcp.Status.ControlPlaneEndpoint || cluster.ClusterName != key.Name || cluster.KubernetesVersion != "v1.36.3" ||
		cluster.Networking.ServiceSubnet != v1alpha1.DefaultServiceCIDR || cluster.Networking.PodSubnet != v1alpha1.DefaultPodCIDR ||
		cluster.Etcd.External == nil || len(cluster.Etcd.External.Endpoints) == 0 || cluster.EncryptionAlgorithm != kubeadmapi.EncryptionAlgorithmECDSAP256 {
		t.Errorf("%+v", cluster)
	}
	if local.LocalAPIEndpoint.BindPort != 6443 || local.LocalAPIEndpoint.AdvertiseAddress == "" {
		t.Errorf("%+v", local.LocalAPIEndpoint)
	}
	shown := tcp.Status.KubeadmConfig
	if shown.ConfigmapName != made.Name || shown.Checksum != name.ChecksumStrings(made.Data) || shown.Checksum != made.Annotations[name.AnnotationChecksum] {
		t.Errorf("the status shows %+v", shown)
	}
	owner := metav1.GetControllerOf(&made)
	if owner == nil || owner.UID != tcp.UID || made.Labels[name.LabelComponent] != name.ComponentKubeadmConfig || made.Labels[name.LabelName] != key.Name {
		t.Errorf("%+v", made.ObjectMeta)
	}
	e.Kubectl(t, e.Local.Kubeconfig("admin"), "-n", key.Namespace, "delete", "cm", made.Name)
	env.Eventually(t, "the ConfigMap again", func() error {
		var again corev1.ConfigMap
		if err := e.Admin.Get(t.Context(), kube.ConfigMaps, key.Namespace, made.Name, &again); err != nil {
			return err
		}
		if !reflect.DeepEqual(again.Data, made.Data) {
			return errors.New("it is another")
		}
		return nil
	})
}

// rotated asks for another certificate of the DataStore, and waits until the tenant's pods have it.
func rotated(t *testing.T, key events.Key) {
	t.Helper()
	var before, after v1alpha1.TenantControlPlane
	get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &before)
	ask := map[string]any{"metadata": map[string]any{"annotations": map[string]any{name.AnnotationRotate: ""}}}
	if err := e.Admin.MergePatch(t.Context(), kube.Secrets, key.Namespace, name.DatastoreCertificate(key.Name), ask, nil); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "pods with the new certificate", func() error {
		get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &after)
		var d appsv1.Deployment
		get(t, kube.Deployments, key.Namespace, name.Deployment(key.Name), &d)
		if after.Status.Storage.Certificate.Checksum == before.Status.Storage.Certificate.Checksum ||
			*after.Status.Kubernetes.Version.Status != v1alpha1.VersionReady || d.Annotations["deployment.kubernetes.io/revision"] != "2" ||
			d.Status.UpdatedReplicas != 1 || d.Status.Replicas != 1 {
			return errors.New("not yet: " + string(event.Marshal(after.Status.Storage)))
		}
		return nil
	})
	if after.Status.Storage.Setup.User != before.Status.Storage.Setup.User || after.Status.ControlPlaneEndpoint != before.Status.ControlPlaneEndpoint {
		t.Errorf("%+v", after.Status)
	}
}
