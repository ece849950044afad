package workload

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestReplaces(t *testing.T) {
	t.Parallel()
	deployment := func() *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Spec.Template.Labels = map[string]string{name.PodChecksumLabel(name.ChecksumCA): "a", name.LabelPodDatastore: "main"}
		for _, n := range []string{name.ContainerAPIServer, name.ContainerControllerManager, name.ContainerScheduler} {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: n, Image: n + ":v1.36.3", Args: []string{"--v=2"}})
		}
		d.Status.Replicas = 1
		return d
	}
	first := func(d *appsv1.Deployment) *corev1.Container { return &d.Spec.Template.Spec.Containers[0] }
	// beside adds a container where Kamaji has it, and where Stoker has it; an image of "" is for none there.
	beside := func(live, want *appsv1.Deployment, n, is, must string, args ...string) {
		if is != "" {
			live.Spec.Template.Spec.Containers = append(live.Spec.Template.Spec.Containers, corev1.Container{Name: n, Image: is, Args: args})
		}
		if must != "" {
			want.Spec.Template.Spec.InitContainers = append(want.Spec.Template.Spec.InitContainers, corev1.Container{Name: n, Image: must, Args: []string{"--ca-file=/certs/ca.crt"}})
		}
	}
	for what, c := range map[string]struct {
		stay   bool
		change func(live, want *appsv1.Deployment, extra *v1alpha1.ControlPlaneExtraArgs)
	}{
		"what is put together otherwise stays": {true, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			first(want).Args = []string{"--other"}
			live.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "etc-ssl-certs"}}
		}},
		"so do pods without checksums that Kamaji doesn't have": {true, func(_, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			want.Spec.Template.Labels[name.PodChecksumLabel(name.ChecksumKonnectivityKubeconfig)] = "x"
			want.Spec.Template.Annotations = map[string]string{name.AnnotationStorageConfig: "x"}
		}},
		"arguments of the spec are there": {true, func(_, _ *appsv1.Deployment, extra *v1alpha1.ControlPlaneExtraArgs) {
			extra.APIServer = []string{"--v=2"}
		}},
		"another version": {false, func(_, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			first(want).Image = "kube-apiserver:v1.36.4"
		}},
		"another authority": {false, func(_, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			want.Spec.Template.Labels[name.PodChecksumLabel(name.ChecksumCA)] = "b"
		}},
		"another DataStore": {false, func(live, _ *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			live.Spec.Template.Labels[name.LabelPodDatastore] = "other"
		}},
		"a checksum that is gone": {false, func(live, _ *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) { live.Spec.Template.Labels = nil }},
		"another password": {false, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			live.Spec.Template.Annotations = map[string]string{name.AnnotationStorageConfig: "a"}
			want.Spec.Template.Annotations = map[string]string{name.AnnotationStorageConfig: "b"}
		}},
		"other resources": {false, func(_, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			first(want).Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}},
		"an argument of the spec that is missing": {false, func(_, _ *appsv1.Deployment, extra *v1alpha1.ControlPlaneExtraArgs) {
			extra.Scheduler = []string{"--v=4"}
		}},
		"a kine that listens elsewhere, of another version, stays": {true, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			beside(live, want, name.ContainerKine, "rancher/kine:v0.11.10", DefaultKineImage, "--ca-file=/certs/ca.crt", "--endpoint=mysql://$(DB_USER)")
		}},
		"a kine without an argument of the spec": {false, func(live, want *appsv1.Deployment, extra *v1alpha1.ControlPlaneExtraArgs) {
			beside(live, want, name.ContainerKine, DefaultKineImage, DefaultKineImage)
			extra.Kine = []string{"--debug"}
		}},
		"a kine with a certificate that its Secret doesn't have": {false, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			beside(live, want, name.ContainerKine, DefaultKineImage, DefaultKineImage, "--cert-file=/certs/server.crt")
		}},
		"a konnectivity server stays": {true, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			beside(live, want, name.ContainerKonnectivity, "proxy-server:v0.36.0", "proxy-server:v0.36.0")
		}},
		"a konnectivity server of another version": {false, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			beside(live, want, name.ContainerKonnectivity, "proxy-server:v0.28.6", "proxy-server:v0.36.0")
		}},
		"a konnectivity server that is missing": {false, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			beside(live, want, name.ContainerKonnectivity, "", "proxy-server:v0.36.0")
		}},
		"a konnectivity server that nobody asks for": {false, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			beside(live, want, name.ContainerKonnectivity, "proxy-server:v0.36.0", "")
		}},
		"no pods": {false, func(live, want *appsv1.Deployment, _ *v1alpha1.ControlPlaneExtraArgs) {
			live.Status.Replicas, want.Spec.Replicas = 0, new(int32(0))
		}},
	} {
		live, want, extra := deployment(), deployment(), v1alpha1.ControlPlaneExtraArgs{}
		c.change(live, want, &extra)
		spec := &v1alpha1.TenantControlPlaneSpec{}
		spec.ControlPlane.Deployment.ExtraArgs = &extra
		if why := replaces(live, want, spec); (why == "") != c.stay {
			t.Errorf("%s: %q", what, why)
		}
	}
}
