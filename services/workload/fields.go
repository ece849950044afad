// Which field of the TenantControlPlane a field of an object comes from. Pure.

package workload

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// pairs of field paths: of the object, and of the TenantControlPlane's spec it comes from.
type pairs [][2]string

// in finds the pair of a path; what follows the object's part follows the spec's.
func (p pairs) in(path string) string {
	for _, pair := range p {
		rest, ok := strings.CutPrefix(path, pair[0])
		if ok && (rest == "" || strings.ContainsAny(rest[:1], ".[")) {
			return pair[1] + rest
		}
	}
	return ""
}

const ofDeployment = "spec.controlPlane.deployment."

var (
	fieldsOfDeployment = pairs{
		{"metadata.labels", ofDeployment + "additionalMetadata.labels"},
		{"metadata.annotations", ofDeployment + "additionalMetadata.annotations"},
		{"spec.replicas", ofDeployment + "replicas"},
		{"spec.strategy", ofDeployment + "strategy"},
		{"spec.template.labels", ofDeployment + "podAdditionalMetadata.labels"},
		{"spec.template.annotations", ofDeployment + "podAdditionalMetadata.annotations"},
		{"spec.template.metadata", ofDeployment + "podAdditionalMetadata"},
		{"spec.template.spec.nodeSelector", ofDeployment + "nodeSelector"},
		{"spec.template.spec.tolerations", ofDeployment + "tolerations"},
		{"spec.template.spec.affinity", ofDeployment + "affinity"},
		{"spec.template.spec.topologySpreadConstraints", ofDeployment + "topologySpreadConstraints"},
		{"spec.template.spec.runtimeClassName", ofDeployment + "runtimeClassName"},
		{"spec.template.spec.serviceAccountName", ofDeployment + "serviceAccountName"},
		{"spec.template.spec.securityContext", ofDeployment + "podSecurityContext"},
	}
	fieldsOfService = pairs{
		{"metadata.labels", "spec.controlPlane.service.additionalMetadata.labels"},
		{"metadata.annotations", "spec.controlPlane.service.additionalMetadata.annotations"},
		{"spec.type", "spec.controlPlane.service.serviceType"},
		{"spec.allocateLoadBalancerNodePorts", "spec.controlPlane.service.allocateLoadBalancerNodePorts"},
		{"spec.externalIPs", "spec.networkProfile.address"},
		{"spec.loadBalancerClass", "spec.networkProfile.loadBalancerClass"},
		{"spec.loadBalancerSourceRanges", "spec.networkProfile.loadBalancerSourceRanges"},
		{"spec.LoadBalancerSourceRanges", "spec.networkProfile.loadBalancerSourceRanges"}, // as the API server writes it
	}
	fieldsOfIngress = pairs{
		{"metadata.labels", "spec.controlPlane.ingress.additionalMetadata.labels"},
		{"metadata.annotations", "spec.controlPlane.ingress.additionalMetadata.annotations"},
		{"spec.ingressClassName", "spec.controlPlane.ingress.ingressClassName"},
		{"spec.rules[0].host", "spec.controlPlane.ingress.hostname"},
	}
	fieldsOfRoute = pairs{
		{"metadata.labels", "spec.controlPlane.gateway.additionalMetadata.labels"},
		{"metadata.annotations", "spec.controlPlane.gateway.additionalMetadata.annotations"},
		{"spec.parentRefs", "spec.controlPlane.gateway.parentRefs"},
		{"spec.hostnames[0]", "spec.controlPlane.gateway.hostname"},
		{"spec.hostnames", "spec.controlPlane.gateway.hostname"},
	}
)

// fieldOf returns the field of the TenantControlPlane that a field of an object comes from, empty when it comes from none
// alone.
func fieldOf(spec *v1alpha1.TenantControlPlaneSpec, object metav1.Object, path string) string {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return cmp.Or(fieldsOfDeployment.in(path), fieldOfPod(&spec.ControlPlane.Deployment, &o.Spec.Template.Spec, path))
	case *corev1.Service:
		return cmp.Or(fieldsOfService.in(path), fieldOfPort(&spec.ControlPlane.Service, o, path))
	case *networkingv1.Ingress:
		return fieldsOfIngress.in(path)
	case *gatewayv1.TLSRoute:
		return fieldsOfRoute.in(path)
	}
	return ""
}

// fieldOfPort finds the field of a Service's port.
func fieldOfPort(spec *v1alpha1.ServiceSpec, o *corev1.Service, path string) string {
	i, rest, ok := elementOf(path, "spec.ports", len(o.Spec.Ports))
	if !ok {
		return ""
	}
	name := o.Spec.Ports[i].Name
	if j := slices.IndexFunc(spec.AdditionalPorts, func(p v1alpha1.AdditionalPort) bool { return p.Name == name }); j >= 0 {
		return fmt.Sprintf("spec.controlPlane.service.additionalPorts[%d]%s", j, rest)
	}
	return "spec.networkProfile.port"
}

// components are the names of the control plane's own containers in the spec.
var components = map[string]string{
	name.ContainerAPIServer: "apiServer", name.ContainerScheduler: "scheduler", name.ContainerControllerManager: "controllerManager",
}

// fieldOfPod finds the field of a container or a volume.
func fieldOfPod(spec *v1alpha1.DeploymentSpec, pod *corev1.PodSpec, path string) string {
	if i, rest, ok := elementOf(path, "spec.template.spec.volumes", len(pod.Volumes)); ok {
		j := slices.IndexFunc(spec.AdditionalVolumes, func(v corev1.Volume) bool { return v.Name == pod.Volumes[i].Name })
		if j < 0 {
			return ""
		}
		return fmt.Sprintf(ofDeployment+"additionalVolumes[%d]%s", j, rest)
	}
	container, rest := "", ""
	if i, of, ok := elementOf(path, "spec.template.spec.containers", len(pod.Containers)); ok {
		container, rest = pod.Containers[i].Name, of
	} else if i, of, ok := elementOf(path, "spec.template.spec.initContainers", len(pod.InitContainers)); ok {
		if i < len(spec.AdditionalInitContainers) {
			return fmt.Sprintf(ofDeployment+"additionalInitContainers[%d]%s", i, of)
		}
		container, rest = pod.InitContainers[i].Name, of
	} else {
		return ""
	}
	j := slices.IndexFunc(spec.AdditionalContainers, func(c corev1.Container) bool { return c.Name == container })
	if container == name.ContainerKine {
		return fieldOfKine(j, rest)
	}
	if j >= 0 {
		return fmt.Sprintf(ofDeployment+"additionalContainers[%d]%s", j, rest)
	}
	component := components[container]
	if component == "" {
		return ""
	}
	return pairs{
		{".image", ofDeployment + "registrySettings"},
		{".args", ofDeployment + "extraArgs." + component},
		{".ports", "spec.networkProfile.port"},
		{".resources", ofDeployment + "resources." + component},
		{".livenessProbe", ofDeployment + "probes." + component + ".liveness"},
		{".readinessProbe", ofDeployment + "probes." + component + ".readiness"},
		{".startupProbe", ofDeployment + "probes." + component + ".startup"},
		{".securityContext", ofDeployment + "containerSecurityContexts." + component},
		{".volumeMounts", ofDeployment + "additionalVolumeMounts." + component},
	}.in(rest)
}

// fieldOfKine finds the field of kine's container; additional is the index of the container that says its image, -1 if none
// does.
func fieldOfKine(additional int, path string) string {
	if additional >= 0 && strings.HasPrefix(path, ".image") {
		return fmt.Sprintf(ofDeployment+"additionalContainers[%d]%s", additional, path)
	}
	return pairs{
		{".args", ofDeployment + "extraArgs.kine"},
		{".resources", ofDeployment + "resources.kine"},
		{".startupProbe", ofDeployment + "probes.startup"},
		{".securityContext", ofDeployment + "containerSecurityContexts.kine"},
	}.in(path)
}

// element is one of a list, and what follows.
var element = regexp.MustCompile(`^\[(\d+)\](.*)$`)

// elementOf finds which of n elements of a list a path leads to, and what follows it.
func elementOf(path, list string, n int) (index int, rest string, ok bool) {
	path, ok = strings.CutPrefix(path, list)
	m := element.FindStringSubmatch(path)
	if !ok || m == nil {
		return 0, "", false
	}
	index, err := strconv.Atoi(m[1])
	return index, m[2], err == nil && index < n
}
