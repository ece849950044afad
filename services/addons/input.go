package addons

import (
	"encoding/json"
	"net"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// versionOf is the version of Kubernetes for which the inside of a tenant is made: the one that its spec asks for in this generation, unless
// the upgrade to it was undone. While pods are on the way to it, nothing is applied.
func versionOf(t *state.Tenant, generation int64, w state.Workload) string {
	if w.Upgrade.Undone(generation) {
		return w.Upgrade.From
	}
	return t.Spec.Kubernetes.Version
}

// inputOf maps the tenant's states to what is rendered for a version of Kubernetes.
func inputOf(t *state.Tenant, version string, certs state.Certs, w state.Workload) Input {
	spec := t.Spec
	in := Input{
		Name: t.Name, Namespace: t.Namespace, Endpoint: w.Endpoint, AdvertiseAddress: w.AdvertiseAddress, Port: w.Port,
		Version: version, ClusterDomain: spec.NetworkProfile.ClusterDomain,
		ServiceCIDRs: spec.NetworkProfile.ServiceCIDRs, PodCIDRs: spec.NetworkProfile.PodCIDRs,
		DNSServiceIPs: spec.NetworkProfile.DNSServiceIPs, CertSANs: spec.NetworkProfile.CertSANs,
		CACertPEM: []byte(certs.CA), KeyAlgorithm: "ECDSA-P256", CgroupDriver: string(spec.Kubernetes.Kubelet.CGroupFS),
		KubeletServing:   t.Annotations[name.AnnotationKubeletServing] == name.KubeletServingApprove,
		WritePermissions: spec.WritePermissions,
	}
	for _, p := range spec.Kubernetes.Kubelet.ConfigurationJSONPatches {
		in.KubeletPatches = append(in.KubeletPatches, JSONPatch{Op: p.Op, Path: p.Path, From: p.From, Value: value(p.Value)})
	}
	if a := spec.Addons.CoreDNS; a != nil {
		in.CoreDNS = &Addon{ImageRepository: a.ImageRepository, ImageTag: a.ImageTag}
	}
	if a := spec.Addons.KubeProxy; a != nil {
		in.KubeProxy = &Addon{ImageRepository: a.ImageRepository, ImageTag: a.ImageTag}
	}
	if a := spec.Addons.Konnectivity; a != nil {
		in.Konnectivity = konnectivityOf(a, version, w.KonnectivityEndpoint)
	}
	return in
}

// konnectivityOf maps the spec of the tunnel; endpoint is where agents reach its server, host:port.
func konnectivityOf(spec *v1alpha1.KonnectivitySpec, version, endpoint string) *Konnectivity {
	host, _, _ := net.SplitHostPort(endpoint)
	a := &spec.Agent
	k := &Konnectivity{
		Host: host, Port: spec.Server.Port, Image: a.Image + ":" + v1alpha1.KonnectivityVersion(a.Version, version),
		Deployment: a.Mode == v1alpha1.KonnectivityAgentModeDeployment, HostNetwork: a.HostNetwork, Tolerations: a.Tolerations, ExtraArgs: a.ExtraArgs,
	}
	if k.Deployment && a.Replicas != nil {
		k.Replicas = *a.Replicas
	}
	return k
}

func hashOf(in Input, access string) string {
	data, err := json.Marshal(in)
	if err != nil {
		panic("an input is plain data: " + err.Error())
	}
	return events.ID(string(data), access)
}

func value(v *runtime.RawExtension) json.RawMessage {
	if v == nil {
		return nil
	}
	return v.Raw
}
