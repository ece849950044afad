// What the control plane's own containers may do: no more than the Pod Security level restricted has, where the spec doesn't
// say otherwise. Pure.

package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// user of the containers, and their group: nonroot of the images that Kubernetes' own are made from.
const user int64 = 65532

const (
	capabilityAll  corev1.Capability = "ALL"
	capabilityBind corev1.Capability = "NET_BIND_SERVICE"
	capabilityRoot corev1.Capability = "SYS_ADMIN"
	// sysctlUnprivilegedPorts is the first port that every user may listen on. It is one of those that Kubernetes calls safe.
	sysctlUnprivilegedPorts = "net.ipv4.ip_unprivileged_port_start"
	// privilegedPorts end here by default.
	privilegedPorts = 1024
)

// securityContext returns that of one of the control plane's own containers: each field as the spec says for the container,
// else for the pod, else as strict as it can be.
func (in Input) securityContext(container string, said *corev1.SecurityContext) *corev1.SecurityContext {
	pod := value(in.Tenant.Spec.ControlPlane.Deployment.PodSecurityContext)
	c := value(said)
	if c.RunAsUser == nil && pod.RunAsUser == nil {
		c.RunAsUser = new(user)
	}
	if c.RunAsGroup == nil && pod.RunAsGroup == nil {
		c.RunAsGroup = new(user)
	}
	as := c.RunAsUser
	if as == nil {
		as = pod.RunAsUser
	}
	if c.RunAsNonRoot == nil && pod.RunAsNonRoot == nil && *as != 0 {
		c.RunAsNonRoot = new(true)
	}
	if c.SeccompProfile == nil && pod.SeccompProfile == nil {
		c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	privileged := value(c.Privileged)
	if c.AllowPrivilegeEscalation == nil && !privileged && !hasRoot(c.Capabilities) { // Kubernetes refuses false beside these
		c.AllowPrivilegeEscalation = new(false)
	}
	if c.Capabilities == nil && !privileged {
		c.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{capabilityAll}}
		if container == name.ContainerAPIServer {
			// Its file has this capability, without which the kernel doesn't start it. As another user than root it has no use of it.
			c.Capabilities.Add = []corev1.Capability{capabilityBind}
		}
	}
	return &c
}

func hasRoot(c *corev1.Capabilities) bool {
	return c != nil && (slices.Contains(c.Add, capabilityRoot) || slices.Contains(c.Add, "CAP_"+capabilityRoot))
}

// podSecurityContext returns that of the pods, as the spec says. Only for an API server at a port below 1024, every user may
// listen on those.
func (in Input) podSecurityContext() *corev1.PodSecurityContext {
	said := in.Tenant.Spec.ControlPlane.Deployment.PodSecurityContext
	isPorts := func(s corev1.Sysctl) bool { return s.Name == sysctlUnprivilegedPorts }
	if in.Tenant.Spec.NetworkProfile.Port >= privilegedPorts || slices.ContainsFunc(value(said).Sysctls, isPorts) {
		return said
	}
	pod := value(said)
	pod.Sysctls = append(slices.Clone(pod.Sysctls), corev1.Sysctl{Name: sysctlUnprivilegedPorts, Value: "0"})
	return &pod
}
