package addons

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// inputOf maps the tenant's states to what is rendered.
func inputOf(t *state.Tenant, certs state.Certs, w state.Workload) Input {
	spec := t.Spec
	in := Input{
		Name: t.Name, Namespace: t.Namespace, Endpoint: w.Endpoint, AdvertiseAddress: w.AdvertiseAddress, Port: w.Port,
		Version: spec.Kubernetes.Version, ClusterDomain: spec.NetworkProfile.ClusterDomain,
		ServiceCIDRs: spec.NetworkProfile.ServiceCIDRs, PodCIDRs: spec.NetworkProfile.PodCIDRs,
		DNSServiceIPs: spec.NetworkProfile.DNSServiceIPs, CertSANs: spec.NetworkProfile.CertSANs,
		CACertPEM: []byte(certs.CA), KeyAlgorithm: "ECDSA-P256", CgroupDriver: string(spec.Kubernetes.Kubelet.CGroupFS),
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
	return in
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
