// The konnectivity server, through which the API server reaches nodes, pods and Services of the tenant: its container, what tells the
// API server to use it, and where the tenant's agents find it. Pure, but for the ConfigMap's step.

package workload

import (
	"context"
	"net"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Where konnectivity's things are in the containers.
const (
	dirKonnectivitySocket = "/run/konnectivity"
	dirEgress             = "/etc/kubernetes/konnectivity/configurations"
	konnectivitySocket    = dirKonnectivitySocket + "/konnectivity-server.socket"
)

// Ports on which the konnectivity server listens beside the agents'.
const (
	portKonnectivityAdmin  = 8133
	portKonnectivityHealth = 8134
)

// flagEgress says through what the API server reaches nodes, pods and Services.
const flagEgress = "egress-selector-config-file"

// egressConfiguration has the API server reach all of the cluster through the konnectivity server of its pod
// (kubernetes.io/docs/tasks/extend-kubernetes/setup-konnectivity).
const egressConfiguration = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: GRPC
    transport:
      uds:
        udsName: ` + konnectivitySocket + "\n"

// hasTunnel reports whether the tenant is to have the tunnel.
func (s Subject) hasTunnel() bool { return s.Tenant.Spec.Addons.Konnectivity != nil }

// Egress returns the ConfigMap of the API server's egress selector configuration, nil for a tenant without the tunnel.
func Egress(s Subject) *corev1.ConfigMap {
	if !s.hasTunnel() {
		return nil
	}
	t := s.Tenant
	return &corev1.ConfigMap{
		TypeMeta:   kube.ConfigMaps.TypeMeta(),
		ObjectMeta: s.meta(name.KonnectivityEgressSelector(t.Name), name.ComponentKonnectivityEgressSelector, v1alpha1.AdditionalMetadata{}),
		Data:       map[string]string{name.KeyEgressSelectorConfiguration: egressConfiguration},
	}
}

// egressChecksum is that of the ConfigMap's data.
func egressChecksum() string {
	return name.Checksum(map[string][]byte{name.KeyEgressSelectorConfiguration: []byte(egressConfiguration)})
}

// konnectivity returns the server's container. Like kine it is an init container that goes on running: it ends after the API server,
// whose last requests need it.
func (in Input) konnectivity() corev1.Container {
	server := &in.Tenant.Spec.Addons.Konnectivity.Server
	c := corev1.Container{
		Name: name.ContainerKonnectivity, ImagePullPolicy: corev1.PullIfNotPresent,
		Image:         server.Image + ":" + v1alpha1.KonnectivityVersion(server.Version, in.Tenant.Spec.Kubernetes.Version),
		Command:       []string{"/proxy-server"},
		Args:          in.konnectivityArgs(),
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Ports: []corev1.ContainerPort{
			{Name: "agentport", ContainerPort: server.Port, Protocol: corev1.ProtocolTCP},
			{Name: "adminport", ContainerPort: portKonnectivityAdmin, Protocol: corev1.ProtocolTCP},
			{Name: "healthport", ContainerPort: portKonnectivityHealth, Protocol: corev1.ProtocolTCP},
		},
		// It is ready, in its own words, once an agent is connected: which says nothing of the API beside it.
		LivenessProbe: probeOf(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/healthz", Port: intstr.FromInt32(portKonnectivityHealth), Scheme: corev1.URISchemeHTTP,
		}}, liveness),
		VolumeMounts: []corev1.VolumeMount{
			{Name: name.VolumeKonnectivityKubeconfig, MountPath: dirKubernetes, ReadOnly: true},
			{Name: name.VolumeKonnectivityUDS, MountPath: dirKonnectivitySocket},
		},
	}
	in.customize(&c, customization{resources: server.Resources, security: server.SecurityContext})
	return c
}

func (in Input) konnectivityArgs() []string {
	spec := &in.Tenant.Spec
	server := &spec.Addons.Konnectivity.Server
	return layer(flags{
		"admin-port":              strconv.Itoa(portKonnectivityAdmin),
		"agent-namespace":         name.NamespaceKonnectivityAgent,
		"agent-port":              strconv.Itoa(int(server.Port)),
		"agent-service-account":   name.KonnectivityAgent,
		"authentication-audience": name.KonnectivityUser,
		"cluster-cert":            pki(name.KeyAPIServerCert),
		"cluster-key":             pki(name.KeyAPIServerKey),
		"health-port":             strconv.Itoa(portKonnectivityHealth),
		"kubeconfig":              path.Join(dirKubernetes, name.KeyKonnectivityConf),
		"mode":                    "grpc",
		// Agents connect until they know as many servers as this.
		"server-count": strconv.Itoa(int(max(value(spec.ControlPlane.Deployment.Replicas), 1))),
		"server-port":  "0",
		"uds-name":     konnectivitySocket,
	}, flags{"v": "2"}, server.ExtraArgs)
}

// konnectivityMounts are what the API server needs to reach the tunnel.
func konnectivityMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: name.VolumeKonnectivityUDS, MountPath: dirKonnectivitySocket},
		{Name: name.VolumeEgressSelectorConfiguration, MountPath: dirEgress, ReadOnly: true},
	}
}

func (in Input) konnectivityVolumes() []corev1.Volume {
	tenant := in.Tenant.Name
	return []corev1.Volume{{
		Name:         name.VolumeKonnectivityUDS,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
	}, {
		Name: name.VolumeEgressSelectorConfiguration,
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name.KonnectivityEgressSelector(tenant)}, DefaultMode: new(mode),
			Items: items("", name.KeyEgressSelectorConfiguration),
		}},
	}, {
		// Of all keys only the server's own: it is reached from outside, and Kamaji's has the authorities' keys beside it.
		Name: name.VolumeKonnectivityKubeconfig,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(mode), Sources: []corev1.VolumeProjection{
			projection(name.KonnectivityKubeconfig(tenant), "", name.KeyKonnectivityConf),
			projection(name.APIServerCertificate(tenant), "pki", name.KeyAPIServerCert, name.KeyAPIServerKey),
		}}},
	}}
}

// konnectivityEndpoint is where agents reach the server, host:port; empty for a tenant without the tunnel. A gateway leads there by
// the host name, as to the API server; an Ingress has no such way, so that agents go to the Service behind it.
func konnectivityEndpoint(spec *v1alpha1.TenantControlPlaneSpec, service string) string {
	if spec.Addons.Konnectivity == nil {
		return ""
	}
	host := service
	switch {
	case spec.ControlPlane.Gateway != nil:
		host = string(spec.ControlPlane.Gateway.Hostname)
	case spec.NetworkProfile.AdvertiseAddress != "":
		host = spec.NetworkProfile.AdvertiseAddress
	}
	return net.JoinHostPort(host, strconv.Itoa(int(spec.Addons.Konnectivity.Server.Port)))
}

// KonnectivityRoute returns the TLSRoute by which agents reach the konnectivity server through the gateway, nil without one: to the
// listener of this name of the same gateways.
func KonnectivityRoute(s Subject) *gatewayv1.TLSRoute {
	o := Route(s)
	if o == nil || !s.hasTunnel() {
		return nil
	}
	port := s.Tenant.Spec.Addons.Konnectivity.Server.Port
	o.ObjectMeta = s.meta(name.KonnectivityRoute(s.Tenant.Name), name.ComponentKonnectivityRoute, s.Tenant.Spec.ControlPlane.Gateway.AdditionalMetadata)
	var parents []gatewayv1.ParentReference
	for _, parent := range o.Spec.ParentRefs {
		parent.SectionName = new(gatewayv1.SectionName(name.PortKonnectivity))
		if parent.Port != nil { // that of the API server's listener
			parent.Port = &port
		}
		parents = append(parents, parent)
	}
	o.Spec.ParentRefs = parents
	o.Spec.Rules[0].BackendRefs[0].Port = &port
	return o
}

// hasServer reports whether pods of a template have the konnectivity server.
func hasServer(pod *corev1.PodSpec) bool {
	for _, c := range pod.InitContainers {
		if c.Name == name.ContainerKonnectivity {
			return true
		}
	}
	return false
}

// configureEgress makes the ConfigMap so that a pod with the tunnel starts with.
func (t *turn) configureEgress(ctx context.Context) error {
	want := Egress(t.subject)
	if want == nil {
		return nil
	}
	inputs := hash(want)
	if t.data.Hashes.Egress == inputs && !t.s.observed.get(t.Key, kindEgress, "").changed() && !t.Due() {
		return nil
	}
	if err := t.apply(ctx, kube.ConfigMaps, kindEgress, want); err != nil {
		return refused(err, t.spec, want, kube.ConfigMaps.Kind)
	}
	t.s.observed.setKnown(t.Key, kindEgress, want.ResourceVersion, 0)
	t.data.Hashes.Egress, t.data.EgressChecksum = inputs, egressChecksum()
	return nil
}

// removeEgress removes the ConfigMap once no pod has the tunnel.
func (t *turn) removeEgress(ctx context.Context) error {
	if t.subject.hasTunnel() || t.data.Konnectivity {
		return nil
	}
	t.data.EgressChecksum = ""
	return t.removeMade(ctx, kube.ConfigMaps, name.KonnectivityEgressSelector(t.Key.Name), &t.data.Hashes.Egress)
}
