package workload

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestFieldOf(t *testing.T) {
	in := load(t, "minimal")
	spec := &in.Tenant.Spec
	d := &spec.ControlPlane.Deployment
	d.AdditionalContainers = []corev1.Container{{Name: "audit"}, {Name: "kine", Image: "a"}}
	d.AdditionalInitContainers = []corev1.Container{{Name: "prepare"}}
	in.Datastore.Driver = string(v1alpha1.DriverPostgreSQL)
	d.AdditionalVolumes = []corev1.Volume{{Name: "policy"}, {Name: "log"}}
	spec.ControlPlane.Service.AdditionalPorts = []v1alpha1.AdditionalPort{{Name: "audit", Port: 8443}}
	spec.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "demo.example.com"}
	spec.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: "demo.example.com"}
	deployment, service := Deployment(in), Service(in.Subject)
	volumes := deployment.Spec.Template.Spec.Volumes
	volume := fmt.Sprintf("spec.template.spec.volumes[%d].emptyDir", slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "log" }))
	for _, test := range []struct {
		object     metav1.Object
		path, want string
	}{
		{deployment, "spec.template.spec.containers[0].image", "spec.controlPlane.deployment.additionalContainers[0].image"},
		{deployment, "spec.template.spec.containers[1].resources.requests[cpu]", "spec.controlPlane.deployment.resources.apiServer.requests[cpu]"},
		{deployment, "spec.template.spec.containers[3].livenessProbe.successThreshold", "spec.controlPlane.deployment.probes.controllerManager.liveness.successThreshold"},
		{deployment, "spec.template.spec.containers[2].image", "spec.controlPlane.deployment.registrySettings"},
		{deployment, "spec.template.spec.containers[1].command", ""},
		{deployment, "spec.template.spec.containers[9].image", ""},
		{deployment, "spec.template.spec.containers", ""},
		{deployment, "spec.template.spec.initContainers[0].name", "spec.controlPlane.deployment.additionalInitContainers[0].name"},
		{deployment, "spec.template.spec.initContainers[1].image", "spec.controlPlane.deployment.additionalContainers[1].image"},
		{deployment, "spec.template.spec.initContainers[1].resources.limits[cpu]", "spec.controlPlane.deployment.resources.kine.limits[cpu]"},
		{deployment, "spec.template.spec.initContainers[2].name", ""},
		{deployment, volume, "spec.controlPlane.deployment.additionalVolumes[1].emptyDir"},
		{deployment, "spec.template.spec.volumes[0].name", ""},
		{deployment, "spec.template.spec.tolerations[0].effect", "spec.controlPlane.deployment.tolerations[0].effect"},
		{deployment, "spec.template.spec.tolerationsOfOthers", ""},
		{deployment, "spec.template.labels", "spec.controlPlane.deployment.podAdditionalMetadata.labels"},
		{deployment, "spec.selector", ""},
		{service, "spec.ports[0].nodePort", "spec.networkProfile.port"},
		{service, "spec.ports[1].port", "spec.controlPlane.service.additionalPorts[0].port"},
		{service, "spec.loadBalancerSourceRanges[0]", "spec.networkProfile.loadBalancerSourceRanges[0]"},
		{service, "spec.clusterIPs[0]", ""},
		{Ingress(in.Subject), "spec.rules[0].host", "spec.controlPlane.ingress.hostname"},
		{Route(in.Subject), "spec.parentRefs", "spec.controlPlane.gateway.parentRefs"},
	} {
		if got := fieldOf(spec, test.object, test.path); got != test.want {
			t.Errorf("%s comes from %q, want %q", test.path, got, test.want)
		}
	}
}
