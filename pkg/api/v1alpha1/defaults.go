package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Defaults of fields. Those that the schema of the CustomResourceDefinition can express are there as well; here they
// serve objects that have not passed an API server.
const (
	DefaultPort                   int32 = 6443
	DefaultReplicas               int32 = 2
	DefaultClusterDomain                = "cluster.local"
	DefaultServiceCIDR                  = "10.96.0.0/16"
	DefaultPodCIDR                      = "10.244.0.0/16"
	DefaultRegistry                     = "registry.k8s.io"
	DefaultAPIServerImage               = "kube-apiserver"
	DefaultControllerManagerImage       = "kube-controller-manager"
	DefaultSchedulerImage               = "kube-scheduler"
	DefaultServiceAccountName           = "default"
	DefaultKonnectivityPort       int32 = 8132
	DefaultKonnectivityServer           = "registry.k8s.io/kas-network-proxy/proxy-server"
	DefaultKonnectivityAgent            = "registry.k8s.io/kas-network-proxy/proxy-agent"
)

// Offsets of the DNS Service's address within a service CIDR: kubeadm's tenth address, and the one that reads ::10.
const (
	dnsOffsetIPv4 = 10
	dnsOffsetIPv6 = 16
)

// DefaultAdmissionControllers returns the admission plugins enabled when an object names none.
func DefaultAdmissionControllers() []AdmissionController {
	return []AdmissionController{
		"CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "DefaultIngressClass",
		"DefaultStorageClass", "DefaultTolerationSeconds", "LimitRanger", "MutatingAdmissionWebhook",
		"NamespaceLifecycle", "PersistentVolumeClaimResize", "Priority", "ResourceQuota", "RuntimeClass",
		"ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition", "ValidatingAdmissionWebhook",
	}
}

// Default resolves the effective spec of an object in place: afterwards services read one form of each setting and need
// no default of their own. It is idempotent, and leaves alone what only the installation knows (the DataStore) and what
// it cannot parse, which the API server has refused anyway.
//
// The result is working state. It is never written back to the API, so that an object stays as its author wrote it.
func Default(tcp *TenantControlPlane) {
	spec := &tcp.Spec

	// What the tenant has already, it keeps, however the names of new ones are made.
	if had := tcp.Status.Storage.Setup; had.Schema != "" && had.User != "" {
		setDefault(&spec.DataStoreSchema, had.Schema)
		setDefault(&spec.DataStoreUsername, had.User)
	}

	setDefault(&spec.DataStoreSchema, name.DataStoreSchema(tcp.Namespace, tcp.Name, string(tcp.UID)))
	setDefault(&spec.DataStoreUsername, name.DataStoreUser(tcp.Namespace, tcp.Name, string(tcp.UID)))

	defaultDeployment(&spec.ControlPlane.Deployment)
	defaultKubernetes(&spec.Kubernetes)
	defaultNetworkProfile(&spec.NetworkProfile)

	for i := range spec.ControlPlane.Service.AdditionalPorts {
		setDefault(&spec.ControlPlane.Service.AdditionalPorts[i].Protocol, corev1.ProtocolTCP)
	}

	if spec.Addons.Konnectivity != nil {
		defaultKonnectivity(spec.Addons.Konnectivity)
	}
}

func defaultDeployment(d *DeploymentSpec) {
	setDefault(&d.RegistrySettings.Registry, DefaultRegistry)
	setDefault(&d.RegistrySettings.APIServerImage, DefaultAPIServerImage)
	setDefault(&d.RegistrySettings.ControllerManagerImage, DefaultControllerManagerImage)
	setDefault(&d.RegistrySettings.SchedulerImage, DefaultSchedulerImage)
	setDefault(&d.ServiceAccountName, DefaultServiceAccountName)

	if d.Replicas == nil {
		d.Replicas = new(DefaultReplicas)
	}

	setDefault(&d.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)

	switch {
	case d.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		// The API server defaults the strategy as a whole, so an author who only changes its type is left with settings
		// that Deployments refuse beside Recreate.
		d.Strategy.RollingUpdate = nil
	case d.Strategy.RollingUpdate == nil:
		d.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
			MaxUnavailable: new(intstr.FromInt32(0)),
			MaxSurge:       new(intstr.FromString("100%")),
		}
	}
}

func defaultKubernetes(k *KubernetesSpec) {
	if k.Version != "" && !strings.HasPrefix(k.Version, "v") {
		k.Version = "v" + k.Version
	}

	if len(k.Kubelet.PreferredAddressTypes) == 0 {
		k.Kubelet.PreferredAddressTypes = []KubeletPreferredAddressType{NodeInternalIP, NodeExternalIP, NodeHostName}
	}

	if len(k.AdmissionControllers) == 0 {
		k.AdmissionControllers = DefaultAdmissionControllers()
	}
}

func defaultNetworkProfile(n *NetworkProfileSpec) {
	setDefault(&n.Port, DefaultPort)
	setDefault(&n.ClusterDomain, DefaultClusterDomain)
	setDefault(&n.ServiceCIDR, DefaultServiceCIDR)
	setDefault(&n.PodCIDR, DefaultPodCIDR)

	n.ServiceCIDRs = pluralCIDRs(n.ServiceCIDRs, n.ServiceCIDR)
	n.PodCIDRs = pluralCIDRs(n.PodCIDRs, n.PodCIDR)

	if len(n.DNSServiceIPs) == 0 {
		n.DNSServiceIPs = dnsServiceIPs(n.ServiceCIDRs)
	}
}

func defaultKonnectivity(k *KonnectivitySpec) {
	setDefault(&k.Server.Port, DefaultKonnectivityPort)
	setDefault(&k.Server.Image, DefaultKonnectivityServer)
	setDefault(&k.Agent.Image, DefaultKonnectivityAgent)
	setDefault(&k.Agent.Mode, KonnectivityAgentModeDaemonSet)

	// An empty list is an author's choice of no tolerations, nil is none made.
	if k.Agent.Tolerations == nil {
		k.Agent.Tolerations = []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}}
	}

	if k.Agent.Mode == KonnectivityAgentModeDeployment && k.Agent.Replicas == nil {
		k.Agent.Replicas = new(int32(1))
	}
}

// KonnectivityVersion is the tag of konnectivity's images: the one that is said, else the first of the release that belongs to a
// version of Kubernetes, v0.36.0 of v1.36.3.
func KonnectivityVersion(said, kubernetes string) string {
	if said != "" {
		return said
	}
	minor, ok := Minor(kubernetes)
	if !ok {
		return ""
	}
	return fmt.Sprintf("v0.%d.0", minor)
}

// pluralCIDRs returns the plural where it is set, else the singular. The order says which family is the primary one, so
// it stays; repetitions go.
func pluralCIDRs(plural []string, singular string) []string {
	if len(plural) == 0 {
		return []string{singular}
	}

	unique := make([]string, 0, len(plural))
	for _, cidr := range plural {
		if !slices.Contains(unique, cidr) {
			unique = append(unique, cidr)
		}
	}

	return unique
}

// dnsServiceIPs returns one address of each CIDR that is large enough to have it.
func dnsServiceIPs(cidrs []string) []string {
	var ips []string

	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			continue
		}

		offset := dnsOffsetIPv6
		if prefix.Addr().Is4() {
			offset = dnsOffsetIPv4
		}

		addr := prefix.Masked().Addr()
		for range offset {
			addr = addr.Next()
		}

		if prefix.Contains(addr) {
			ips = append(ips, addr.String())
		}
	}

	return ips
}

// setDefault sets a field that has its zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Sleeps reports whether a spec asks for no pods.
func (s *TenantControlPlaneSpec) Sleeps() bool {
	r := s.ControlPlane.Deployment.Replicas
	return r != nil && *r == 0
}
