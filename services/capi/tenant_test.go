package capi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// full is a control plane that has every field.
func full(t *testing.T) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "pkg", "api", "controlplane", "testdata", "kamajicontrolplane.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := map[string]any{}
	if err := yaml.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func decoded(t *testing.T, o map[string]any) *controlplane.KamajiControlPlane {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	typed := &controlplane.KamajiControlPlane{}
	if err := json.Unmarshal(data, typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

// leaves are the paths of all values below one that are no map or list, or an empty list.
func leaves(at []string, v any) (all [][]string) {
	switch x := v.(type) {
	case map[string]any:
		for k, v := range x {
			all = append(all, leaves(append(slices.Clone(at), k), v)...)
		}
	case []any:
		for i, v := range x {
			all = append(all, leaves(append(slices.Clone(at), strconv.Itoa(i)), v)...)
		}
	}
	if m, ok := v.(map[string]any); all == nil && (!ok || len(m) > 0) {
		return [][]string{at}
	}
	return all
}

// take takes a value out of what it is in; an element of a list takes the whole list with it.
func take(v any, path []string) {
	m, ok := v.(map[string]any)
	if !ok {
		i, _ := strconv.Atoi(path[0])
		take(v.([]any)[i], path[1:])
		return
	}
	if _, list := m[path[0]].([]any); len(path) == 1 || list && len(path) == 2 {
		delete(m, path[0])
		return
	}
	take(m[path[0]], path[1:])
}

// notOfTheTenant are the fields of a control plane that say nothing about its tenant's object; and those that do, but not of one that has
// every field: others count instead, or it is the default.
var notOfTheTenant = []string{
	"spec.controlPlaneEndpoint.", "spec.deployment.externalClusterReference.", "spec.network.dnsServiceIPs.", "spec.network.serviceType",
}

func TestEveryFieldReachesTheTenant(t *testing.T) {
	whole := full(t)
	of := &cluster{}
	want := digest(tenantOf(decoded(t, whole), of))
	for _, path := range leaves([]string{"spec"}, whole["spec"]) {
		without := full(t)
		take(without, path)
		text := strings.Join(path, ".")
		says := digest(tenantOf(decoded(t, without), of)) != want
		if is := !slices.ContainsFunc(notOfTheTenant, func(p string) bool { return strings.HasPrefix(text, p) }); says != is {
			t.Errorf("%s: the tenant is another one without it: %t", text, says)
		}
	}
}

func TestTenantOf(t *testing.T) {
	minimal := func() *controlplane.KamajiControlPlane {
		o := &controlplane.KamajiControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "cp", UID: "u"}}
		o.Spec.Version = "1.36.3"
		return o
	}
	for sentence, c := range map[string]struct {
		change func(*controlplane.KamajiControlPlane, *cluster)
		got    func(*v1alpha1.TenantControlPlane) any
		want   any
	}{
		"the version gets its v": {nil, func(x *v1alpha1.TenantControlPlane) any { return x.Spec.Kubernetes.Version }, "v1.36.3"},
		"what isn't set is left out": {nil, func(x *v1alpha1.TenantControlPlane) any {
			data, _ := json.Marshal(x.Spec)
			return string(data)
		}, `{"controlPlane":{"service":{"serviceType":"LoadBalancer"}},"kubernetes":{"version":"v1.36.3"}}`},
		"the control plane is the controller": {nil, func(x *v1alpha1.TenantControlPlane) any { return metav1.GetControllerOf(x).UID }, minimal().UID},
		"labels and annotations are copied, but for those of tools that made the control plane, and of intake": {func(o *controlplane.KamajiControlPlane, _ *cluster) {
			o.Labels = map[string]string{"team": "a", "kustomize.toolkit.fluxcd.io/name": "x"}
			o.Annotations = map[string]string{"note": "b", "stoker.dev/datastore-selector": "tier=gold", "stoker.dev/datastore": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}", name.AnnotationClusterPaused: "",
				name.AnnotationTransferWhenPaused: "true"}
		}, func(x *v1alpha1.TenantControlPlane) any { return []any{x.Labels, x.Annotations} },
			[]any{map[string]string{"team": "a"}, map[string]string{"note": "b", "stoker.dev/datastore-selector": "tier=gold"}}},
		"networks, port and domain are the Cluster's": {func(_ *controlplane.KamajiControlPlane, of *cluster) {
			n := &of.Spec.ClusterNetwork
			n.APIServerPort, n.ServiceDomain = 6444, "c.example"
			n.Services.CIDRBlocks, n.Pods.CIDRBlocks = []string{"10.1.0.0/16"}, []string{"10.2.0.0/16", "fd00::/64"}
		}, func(x *v1alpha1.TenantControlPlane) any { return x.Spec.NetworkProfile }, v1alpha1.NetworkProfileSpec{
			Port: 6444, ClusterDomain: "c.example", ServiceCIDR: "10.1.0.0/16", PodCIDR: "10.2.0.0/16", PodCIDRs: []string{"10.2.0.0/16", "fd00::/64"},
		}},
		"the host of an Ingress is in the certificate, without its port": {func(o *controlplane.KamajiControlPlane, _ *cluster) {
			o.Spec.Network.Ingress = &controlplane.IngressSpec{Hostname: "api.example:8443"}
			o.Spec.Network.CertSANs = []string{"x"}
		}, func(x *v1alpha1.TenantControlPlane) any { return x.Spec.NetworkProfile.CertSANs }, []string{"x", "api.example"}},
		"that of a Gateway is there once": {func(o *controlplane.KamajiControlPlane, _ *cluster) {
			o.Spec.Network.Gateway = &controlplane.GatewaySpec{Name: "g", Namespace: "n", Hostname: "api.example:8443"}
			o.Spec.Network.CertSANs = []string{"api.example"}
		}, func(x *v1alpha1.TenantControlPlane) any {
			return []any{x.Spec.NetworkProfile.CertSANs, string(x.Spec.ControlPlane.Gateway.Hostname)}
		}, []any{[]string{"api.example"}, "api.example"}},
		"addresses of the DNS are CoreDNS's, if it has some": {func(o *controlplane.KamajiControlPlane, _ *cluster) {
			o.Spec.Network.DNSServiceIPs = []string{"10.0.0.1"}
			o.Spec.Addons.CoreDNS = &controlplane.CoreDNSSpec{DNSServiceIPs: []string{"10.0.0.2"}}
		}, func(x *v1alpha1.TenantControlPlane) any { return x.Spec.NetworkProfile.DNSServiceIPs }, []string{"10.0.0.2"}},
		"and the network's, if it has none": {func(o *controlplane.KamajiControlPlane, _ *cluster) {
			o.Spec.Network.DNSServiceIPs = []string{"10.0.0.1"}
			o.Spec.Addons.CoreDNS = &controlplane.CoreDNSSpec{}
		}, func(x *v1alpha1.TenantControlPlane) any { return x.Spec.NetworkProfile.DNSServiceIPs }, []string{"10.0.0.1"}},
		"one block of probes is enough": {func(o *controlplane.KamajiControlPlane, _ *cluster) {
			o.Spec.Scheduler.Probes = &v1alpha1.ProbeSet{Startup: &v1alpha1.ProbeSpec{}}
		}, func(x *v1alpha1.TenantControlPlane) any {
			return x.Spec.ControlPlane.Deployment.Probes.Scheduler.Startup != nil
		}, true},
	} {
		o, of := minimal(), &cluster{}
		if c.change != nil {
			c.change(o, of)
		}
		if got := c.got(tenantOf(o, of)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, not %v", sentence, got, c.want)
		}
	}
}

func TestClusterOf(t *testing.T) {
	shim := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "x-shim"}
	owner := metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "x"}
	foreign := metav1.OwnerReference{APIVersion: "cluster.example/v1", Kind: "Cluster", Name: "y"}
	for sentence, c := range map[string]struct {
		owners []metav1.OwnerReference
		label  string
		want   string
	}{
		"the owner, wherever it is":     {[]metav1.OwnerReference{shim, owner}, "z", "x"},
		"no Cluster of somebody else's": {[]metav1.OwnerReference{foreign}, "", ""},
		"what the label says":           {[]metav1.OwnerReference{shim}, "z", "z"},
		"none":                          {},
	} {
		o := &metav1.ObjectMeta{OwnerReferences: c.owners, Labels: map[string]string{name.LabelClusterName: c.label}}
		if got := clusterOf(o); got != c.want {
			t.Errorf("%s: %q", sentence, got)
		}
	}
}
