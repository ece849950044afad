package capi

// The tenant of a control plane: which TenantControlPlane a KamajiControlPlane and its Cluster ask for. Each field says one thing; one that
// is taken off the control plane is taken off the tenant, for it is applied by the server side.

import (
	"cmp"
	"net"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// tenantOf is the tenant that a control plane of a Cluster asks for.
func tenantOf(o *controlplane.KamajiControlPlane, of *cluster) *v1alpha1.TenantControlPlane {
	s := o.Spec
	t := &v1alpha1.TenantControlPlane{
		TypeMeta: kube.TenantControlPlanes.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, Labels: copied(o.Labels), Annotations: copied(o.Annotations),
			OwnerReferences: []metav1.OwnerReference{ownerOf(o)},
		},
		Spec: v1alpha1.TenantControlPlaneSpec{
			WritePermissions: s.WritePermissions,
			DataStore:        s.DataStoreName, DataStoreSchema: s.DataStoreSchema, DataStoreUsername: s.DataStoreUsername,
			DataStoreOverrides: s.DataStoreOverrides,
			ControlPlane: v1alpha1.ControlPlane{
				Deployment: deploymentOf(o), Service: serviceOf(s.Network), Ingress: ingressOf(s.Network.Ingress), Gateway: gatewayOf(s.Network.Gateway),
			},
			Kubernetes: v1alpha1.KubernetesSpec{
				Version: version(s.Version), Kubelet: s.Kubelet, AdmissionControllers: s.AdmissionControllers,
			},
			NetworkProfile: networkOf(s, of),
			Addons:         v1alpha1.AddonsSpec{Konnectivity: s.Addons.Konnectivity, KubeProxy: s.Addons.KubeProxy},
		},
	}
	if dns := s.Addons.CoreDNS; dns != nil {
		t.Spec.Addons.CoreDNS = &dns.AddonSpec
	}
	return t
}

// notCopied begin the labels and annotations that are about the control plane's object itself: what wrote it, and where clusterctl moves it.
var notCopied = []string{
	"kubectl.kubernetes.io/", "meta.helm.sh/", "argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
	"clusterctl.cluster.x-k8s.io/", name.AnnotationClusterPaused, name.AnnotationTransfer,
}

// records are the labels and annotations of a tenant that an installation's own services write.
var records = name.Records()

// copied are those labels or annotations of a control plane that its tenant gets.
func copied(of map[string]string) map[string]string {
	kept := map[string]string{}
	for k, v := range of {
		if !slices.Contains(records, k) && !slices.ContainsFunc(notCopied, func(p string) bool { return strings.HasPrefix(k, p) }) {
			kept[k] = v
		}
	}
	return kept
}

// ownerOf is the reference by which a control plane owns what is made for it.
func ownerOf(o *controlplane.KamajiControlPlane) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{
		APIVersion: controlplane.GroupVersion.String(), Kind: kube.KamajiControlPlanes.Kind, Name: o.Name, UID: o.UID,
		Controller: &yes, BlockOwnerDeletion: &yes,
	}
}

// version has its leading v.
func version(v string) string { return "v" + strings.TrimPrefix(v, "v") }

func deploymentOf(o *controlplane.KamajiControlPlane) v1alpha1.DeploymentSpec {
	s, d := o.Spec, o.Spec.Deployment
	return v1alpha1.DeploymentSpec{
		RegistrySettings: v1alpha1.RegistrySettings{
			Registry: s.Registry, TagSuffix: s.TagSuffix, APIServerImage: s.APIServer.ContainerImageName,
			ControllerManagerImage: s.ControllerManager.ContainerImageName, SchedulerImage: s.Scheduler.ContainerImageName,
		},
		Replicas: s.Replicas, NodeSelector: d.NodeSelector, RuntimeClassName: d.RuntimeClassName, Strategy: d.Strategy, Tolerations: d.Tolerations,
		Affinity: d.Affinity, TopologySpreadConstraints: d.TopologySpreadConstraints,
		Resources: some(v1alpha1.ControlPlaneComponentsResources{
			APIServer: s.APIServer.Resources, ControllerManager: s.ControllerManager.Resources, Scheduler: s.Scheduler.Resources, Kine: s.Kine.Resources,
		}, s.APIServer.Resources != nil || s.ControllerManager.Resources != nil || s.Scheduler.Resources != nil || s.Kine.Resources != nil),
		ExtraArgs: some(v1alpha1.ControlPlaneExtraArgs{
			APIServer: s.APIServer.ExtraArgs, ControllerManager: s.ControllerManager.ExtraArgs, Scheduler: s.Scheduler.ExtraArgs, Kine: s.Kine.ExtraArgs,
		}, len(s.APIServer.ExtraArgs)+len(s.ControllerManager.ExtraArgs)+len(s.Scheduler.ExtraArgs)+len(s.Kine.ExtraArgs) > 0),
		AdditionalMetadata: d.AdditionalMetadata, PodAdditionalMetadata: d.PodAdditionalMetadata,
		AdditionalInitContainers: d.ExtraInitContainers, AdditionalContainers: d.ExtraContainers, AdditionalVolumes: d.ExtraVolumes,
		AdditionalVolumeMounts: some(v1alpha1.AdditionalVolumeMounts{
			APIServer: s.APIServer.ExtraVolumeMounts, ControllerManager: s.ControllerManager.ExtraVolumeMounts, Scheduler: s.Scheduler.ExtraVolumeMounts,
		}, len(s.APIServer.ExtraVolumeMounts)+len(s.ControllerManager.ExtraVolumeMounts)+len(s.Scheduler.ExtraVolumeMounts) > 0),
		Probes:             probesOf(s),
		ServiceAccountName: d.ServiceAccountName, AutomountServiceAccountToken: d.AutomountServiceAccountToken,
		PodSecurityContext: d.PodSecurityContext, ContainerSecurityContexts: d.ContainerSecurityContexts,
	}
}

// some is a pointer to a value if there is something in it.
func some[T any](v T, is bool) *T {
	if !is {
		return nil
	}
	return &v
}

// probesOf are the probes of all components and of each.
func probesOf(s controlplane.KamajiControlPlaneSpec) *v1alpha1.ControlPlaneProbes {
	p := v1alpha1.ControlPlaneProbes{APIServer: s.APIServer.Probes, ControllerManager: s.ControllerManager.Probes, Scheduler: s.Scheduler.Probes}
	if all := s.Deployment.Probes; all != nil {
		p.Liveness, p.Readiness, p.Startup = all.Liveness, all.Readiness, all.Startup
	}
	return some(p, p != v1alpha1.ControlPlaneProbes{})
}

func serviceOf(n controlplane.NetworkSpec) v1alpha1.ServiceSpec {
	return v1alpha1.ServiceSpec{
		AdditionalMetadata: v1alpha1.AdditionalMetadata{Labels: n.ServiceLabels, Annotations: n.ServiceAnnotations},
		AdditionalPorts:    n.AdditionalServicePorts, ServiceType: cmp.Or(n.ServiceType, v1alpha1.ServiceTypeLoadBalancer),
		AllocateLoadBalancerNodePorts: n.AllocateLoadBalancerNodePorts,
	}
}

func ingressOf(i *controlplane.IngressSpec) *v1alpha1.IngressSpec {
	if i == nil {
		return nil
	}
	return &v1alpha1.IngressSpec{
		AdditionalMetadata: v1alpha1.AdditionalMetadata{Labels: i.ExtraLabels, Annotations: i.ExtraAnnotations},
		IngressClassName:   i.ClassName, Hostname: i.Hostname,
	}
}

func gatewayOf(g *controlplane.GatewaySpec) *v1alpha1.GatewaySpec {
	if g == nil {
		return nil
	}
	parent := gatewayv1.ParentReference{
		Name: gatewayv1.ObjectName(g.Name), Namespace: new(gatewayv1.Namespace(g.Namespace)), Port: g.Port,
	}
	if g.SectionName != "" {
		parent.SectionName = new(gatewayv1.SectionName(g.SectionName))
	}
	return &v1alpha1.GatewaySpec{
		AdditionalMetadata: v1alpha1.AdditionalMetadata{Labels: g.ExtraLabels, Annotations: g.ExtraAnnotations},
		ParentRefs:         []gatewayv1.ParentReference{parent}, Hostname: gatewayv1.Hostname(hostOf(g.Hostname)),
	}
}

// hostOf is a host without its port.
func hostOf(hostname string) string {
	if host, _, err := net.SplitHostPort(hostname); err == nil {
		return host
	}
	return hostname
}

// front is the host name, perhaps with a port, of the Ingress or Gateway before a control plane; empty for none.
func front(n controlplane.NetworkSpec) string {
	switch {
	case n.Ingress != nil:
		return n.Ingress.Hostname
	case n.Gateway != nil:
		return n.Gateway.Hostname
	}
	return ""
}

func networkOf(s controlplane.KamajiControlPlaneSpec, of *cluster) v1alpha1.NetworkProfileSpec {
	n, net := s.Network, of.Spec.ClusterNetwork
	p := v1alpha1.NetworkProfileSpec{
		Address: n.ServiceAddress, AdvertiseAddress: n.AdvertiseAddress, AllowAddressAsExternalIP: n.AllowAddressAsExternalIP,
		Port: net.APIServerPort, CertSANs: slices.Clone(n.CertSANs), ClusterDomain: net.ServiceDomain, DNSServiceIPs: n.DNSServiceIPs,
	}
	if host := hostOf(front(n)); host != "" && !slices.Contains(p.CertSANs, host) {
		p.CertSANs = append(p.CertSANs, host)
	}
	if dns := s.Addons.CoreDNS; dns != nil && len(dns.DNSServiceIPs) > 0 {
		p.DNSServiceIPs = dns.DNSServiceIPs
	}
	p.ServiceCIDR, p.ServiceCIDRs = blocks(net.Services.CIDRBlocks)
	p.PodCIDR, p.PodCIDRs = blocks(net.Pods.CIDRBlocks)
	if lb := n.LoadBalancerConfig; lb != nil {
		p.LoadBalancerSourceRanges, p.LoadBalancerClass = lb.LoadBalancerSourceRanges, lb.LoadBalancerClass
	}
	return p
}

// blocks are the first of a Cluster's networks, and all if there are more.
func blocks(all []string) (first string, more []string) {
	if len(all) > 0 {
		first = all[0]
	}
	if len(all) > 1 {
		more = all
	}
	return first, more
}
