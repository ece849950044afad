// The objects of a control plane as they must be: Service, Ingress and Deployment, from the effective spec and what the
// other services made. Pure: equal inputs give equal objects, byte for byte.

package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Subject is the tenant that objects are made for.
type Subject struct {
	// UID of the TenantControlPlane, which owns the objects.
	UID string
	// Tenant has every default resolved.
	Tenant *state.Tenant
}

// Input is everything a Deployment is made from.
type Input struct {
	Subject
	// Advertise is the address the API server announces inside the tenant.
	Advertise string
	// Certs and Datastore are what these services have made.
	Certs     state.Certs
	Datastore state.Datastore
	// KineImage is the image of kine; empty for the default. GateImage is that of the gate.
	KineImage, GateImage string
}

// meta is the metadata of an object of the tenant. Stoker's own labels win over the user's: watches rely on them.
func (s Subject) meta(object, component string, additional v1alpha1.AdditionalMetadata) metav1.ObjectMeta {
	t := s.Tenant
	return metav1.ObjectMeta{
		Namespace: t.Namespace, Name: object,
		Labels:      merge(additional.Labels, name.Labels(t.Name, component, name.Partition(t.Namespace, t.Name))),
		Annotations: merge(additional.Annotations),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: kube.TenantControlPlanes.GroupVersion.String(), Kind: kube.TenantControlPlanes.Kind,
			Name: t.Name, UID: types.UID(s.UID), Controller: new(true), BlockOwnerDeletion: new(true),
		}},
	}
}

// merge returns the union of maps, later ones win; nil when it is empty.
func merge(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Service returns how the control plane is reached.
func Service(s Subject) *corev1.Service {
	t := s.Tenant
	spec, profile := &t.Spec.ControlPlane.Service, &t.Spec.NetworkProfile
	o := &corev1.Service{
		TypeMeta:   kube.Services.TypeMeta(),
		ObjectMeta: s.meta(name.Service(t.Name), name.ComponentService, spec.AdditionalMetadata),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceType(spec.ServiceType),
			Selector: name.Selector(t.Name),
			Ports: []corev1.ServicePort{{
				Name: name.PortAPIServer, Protocol: corev1.ProtocolTCP,
				Port: profile.Port, TargetPort: intstr.FromInt32(profile.Port),
			}},
		},
	}
	switch spec.ServiceType {
	case v1alpha1.ServiceTypeNodePort:
		o.Spec.Ports[0].NodePort = profile.Port
	case v1alpha1.ServiceTypeLoadBalancer:
		o.Spec.LoadBalancerClass = profile.LoadBalancerClass
		o.Spec.LoadBalancerSourceRanges = profile.LoadBalancerSourceRanges
		o.Spec.AllocateLoadBalancerNodePorts = spec.AllocateLoadBalancerNodePorts
	}
	if s.hasTunnel() {
		port := t.Spec.Addons.Konnectivity.Server.Port
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
			Name: name.PortKonnectivity, Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(port),
		})
		if spec.ServiceType == v1alpha1.ServiceTypeNodePort {
			o.Spec.Ports[1].NodePort = port
		}
	}
	_, err := netip.ParseAddr(profile.Address)
	if err == nil && profile.AllowAddressAsExternalIP && spec.ServiceType != v1alpha1.ServiceTypeLoadBalancer {
		o.Spec.ExternalIPs = []string{profile.Address}
	}
	for _, p := range spec.AdditionalPorts {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort,
		})
	}
	return o
}

// Ingress returns the Ingress of the API server, nil when the spec asks for none. It has no TLS section: the API server
// ends TLS itself, and the user's annotations make the ingress controller pass it through.
func Ingress(s Subject) *networkingv1.Ingress {
	t := s.Tenant
	spec := t.Spec.ControlPlane.Ingress
	if spec == nil || spec.Hostname == "" {
		return nil
	}
	host := spec.Hostname
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	o := &networkingv1.Ingress{
		TypeMeta:   kube.Ingresses.TypeMeta(),
		ObjectMeta: s.meta(name.Ingress(t.Name), name.ComponentIngress, spec.AdditionalMetadata),
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: host,
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{
					Path: "/", PathType: new(networkingv1.PathTypePrefix),
					Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
						Name: name.Service(t.Name), Port: networkingv1.ServiceBackendPort{Number: t.Spec.NetworkProfile.Port},
					}},
				}},
			}},
		}}},
	}
	if spec.IngressClassName != "" {
		o.Spec.IngressClassName = &spec.IngressClassName
	}
	return o
}

// Deployment returns the pods of the control plane. The annotation AnnotationConfigHash of their template is the hash of
// the template without it.
func Deployment(in Input) *appsv1.Deployment {
	t := in.Tenant
	spec := &t.Spec.ControlPlane.Deployment
	o := &appsv1.Deployment{
		TypeMeta:   kube.Deployments.TypeMeta(),
		ObjectMeta: in.meta(name.Deployment(t.Name), name.ComponentDeployment, spec.AdditionalMetadata),
		Spec: appsv1.DeploymentSpec{
			Replicas:             spec.Replicas,
			RevisionHistoryLimit: new(oldReplicaSets),
			Selector:             &metav1.LabelSelector{MatchLabels: name.Selector(t.Name)},
			Strategy:             spec.Strategy,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: in.podLabels(), Annotations: in.podAnnotations()},
				Spec:       in.pod(),
			},
		},
	}
	o.Annotations = merge(o.Annotations, map[string]string{name.AnnotationAPIServerArgs: hash(in.extraArgs().APIServer)})
	o.Spec.Template.Annotations[name.AnnotationConfigHash] = hash(o.Spec.Template)
	return o
}

// checksums maps the certs service's components that pods mount to the names of the labels that make a change of one roll
// them out.
var checksums = map[string]string{
	name.ComponentAPIServerCertificate:              name.ChecksumAPIServerCertificate,
	name.ComponentAPIServerKubeletClientCertificate: name.ChecksumAPIServerKubeletClientCertificate,
	name.ComponentCA:                                name.ChecksumCA,
	name.ComponentControllerManagerKubeconfig:       name.ChecksumControllerManagerKubeconfig,
	name.ComponentFrontProxyCA:                      name.ChecksumFrontProxyCA,
	name.ComponentFrontProxyClientCertificate:       name.ChecksumFrontProxyClientCertificate,
	name.ComponentServiceAccountKeys:                name.ChecksumServiceAccountKeys,
	name.ComponentSchedulerKubeconfig:               name.ChecksumSchedulerKubeconfig,
}

// podLabels: the user's win over Kamaji's, but for the selector, without which the Deployment is refused.
func (in Input) podLabels() map[string]string {
	t := in.Tenant
	own := name.Labels(t.Name, name.ComponentDeployment, name.Partition(t.Namespace, t.Name))
	own[name.LabelPodDatastore] = in.Datastore.DataStore
	for component, checksum := range checksums {
		own[name.PodChecksumLabel(checksum)] = in.Certs.Secrets[component].Checksum
	}
	if in.hasTunnel() {
		own[name.PodChecksumLabel(name.ChecksumKonnectivityKubeconfig)] = in.Certs.Secrets[name.ComponentKonnectivityKubeconfig].Checksum
		own[name.PodChecksumLabel(name.ChecksumKonnectivityEgressSelector)] = egressChecksum()
	}
	if sum := in.secretsChecksum(); sum != "" {
		own[name.PodChecksumLabel(name.ChecksumAPIServerSecrets)] = sum
	}
	encryption := map[string]string{}
	if in.encrypts() { // wins over the user's: by it, pods are told apart that can't read what others write
		encryption[name.PodChecksumLabel(name.ChecksumEncryption)] = in.encryptionLabel()
	}
	return merge(own, t.Spec.ControlPlane.Deployment.PodAdditionalMetadata.Labels, name.Selector(t.Name), encryption)
}

func (in Input) podAnnotations() map[string]string {
	return merge(in.Tenant.Spec.ControlPlane.Deployment.PodAdditionalMetadata.Annotations, map[string]string{
		name.AnnotationStorageConfig:      in.Datastore.Config.Checksum,
		name.AnnotationStorageCertificate: in.Datastore.Certificate.Checksum,
	}, in.gateAnnotations(), in.documents())
}

func (in Input) pod() corev1.PodSpec {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	pod := corev1.PodSpec{
		InitContainers:                spec.AdditionalInitContainers,
		Containers:                    in.additional(),
		Volumes:                       append(in.volumes(), spec.AdditionalVolumes...),
		NodeSelector:                  spec.NodeSelector,
		Tolerations:                   spec.Tolerations,
		Affinity:                      spec.Affinity,
		ServiceAccountName:            spec.ServiceAccountName,
		AutomountServiceAccountToken:  new(value(spec.AutomountServiceAccountToken)), // nothing of a control plane needs one
		SecurityContext:               in.podSecurityContext(),
		TerminationGracePeriodSeconds: new(terminationGrace),
	}
	pod.Containers = append(pod.Containers, in.apiServer(), in.scheduler(), in.controllerManager())
	for _, k := range in.kines() {
		pod.InitContainers = append(slices.Clone(pod.InitContainers), in.kine(k))
	}
	if in.hasGate() {
		pod.InitContainers = append(slices.Clone(pod.InitContainers), in.gate())
	}
	if in.hasTunnel() {
		pod.InitContainers = append(slices.Clone(pod.InitContainers), in.konnectivity())
	}
	if spec.RuntimeClassName != "" {
		pod.RuntimeClassName = &spec.RuntimeClassName
	}
	for _, c := range spec.TopologySpreadConstraints {
		if c.LabelSelector == nil {
			c.LabelSelector = &metav1.LabelSelector{MatchLabels: name.Selector(in.Tenant.Name)}
		}
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, c)
	}
	return pod
}

// hash is a fingerprint of plain data.
func hash(data any) string {
	b, err := json.Marshal(data)
	if err != nil {
		panic("object is not plain data: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
