package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestSecurityContext(t *testing.T) {
	in := func(pod *corev1.PodSecurityContext) Input {
		in := load(t, "minimal")
		in.Tenant.Spec.ControlPlane.Deployment.PodSecurityContext = pod
		return in
	}
	t.Run("what the spec says of the pod isn't said again of the container", func(t *testing.T) {
		c := in(&corev1.PodSecurityContext{RunAsUser: new(int64(7)), RunAsNonRoot: new(true)}).securityContext(name.ContainerScheduler, nil)
		if c.RunAsUser != nil || c.RunAsNonRoot != nil {
			t.Errorf("%+v", c)
		}
	})
	t.Run("a container that the spec makes root isn't told not to be", func(t *testing.T) {
		c := in(nil).securityContext(name.ContainerScheduler, &corev1.SecurityContext{RunAsUser: new(int64(0))})
		if c.RunAsNonRoot != nil {
			t.Errorf("%+v", c)
		}
		if c := in(&corev1.PodSecurityContext{RunAsUser: new(int64(0))}).securityContext(name.ContainerScheduler, nil); c.RunAsNonRoot != nil {
			t.Errorf("%+v", c)
		}
	})
	t.Run("a privileged container has nothing that Kubernetes refuses beside that", func(t *testing.T) {
		c := in(nil).securityContext(name.ContainerScheduler, &corev1.SecurityContext{Privileged: new(true)})
		if c.AllowPrivilegeEscalation != nil || c.Capabilities != nil {
			t.Errorf("%+v", c)
		}
		sys := &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_ADMIN"}}
		if c := in(nil).securityContext(name.ContainerScheduler, &corev1.SecurityContext{Capabilities: sys}); c.AllowPrivilegeEscalation != nil {
			t.Errorf("%+v", c)
		}
	})
	t.Run("the spec is left as it is", func(t *testing.T) {
		said := &corev1.SecurityContext{}
		in(nil).securityContext(name.ContainerScheduler, said)
		if said.RunAsUser != nil {
			t.Errorf("%+v", said)
		}
	})
}

func TestPodsGetNoToken(t *testing.T) {
	in := load(t, "minimal")
	if pod := Deployment(in).Spec.Template.Spec; pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("a pod of which the spec says nothing gets a token of the management cluster")
	}
	in.Tenant.Spec.ControlPlane.Deployment.AutomountServiceAccountToken = new(true)
	if pod := Deployment(in).Spec.Template.Spec; !*pod.AutomountServiceAccountToken {
		t.Error("a pod doesn't get the token that the spec asks for")
	}
}

func TestPortsBelow1024AreEverybodys(t *testing.T) {
	in := load(t, "minimal")
	if c := Deployment(in).Spec.Template.Spec.SecurityContext; c != nil {
		t.Errorf("port %d: %+v", v1alpha1.DefaultPort, c)
	}
	in.Tenant.Spec.NetworkProfile.Port = 443
	if s := Deployment(in).Spec.Template.Spec.SecurityContext.Sysctls; len(s) != 1 || s[0].Name != sysctlUnprivilegedPorts || s[0].Value != "0" {
		t.Errorf("sysctls %v", s)
	}
	in.Tenant.Spec.ControlPlane.Deployment.PodSecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: sysctlUnprivilegedPorts, Value: "80"}}}
	if s := Deployment(in).Spec.Template.Spec.SecurityContext.Sysctls; len(s) != 1 || s[0].Value != "80" {
		t.Errorf("the spec's own is not taken: %v", s)
	}
}
