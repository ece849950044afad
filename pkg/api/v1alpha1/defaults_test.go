package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestDefault(t *testing.T) {
	t.Parallel()

	type tenant = v1alpha1.TenantControlPlane

	blueGreen := &appsv1.RollingUpdateDeployment{
		MaxUnavailable: new(intstr.FromInt32(0)),
		MaxSurge:       new(intstr.FromString("100%")),
	}

	tests := map[string]struct {
		given func(*tenant)
		got   func(*tenant) any
		want  any
	}{
		"without service CIDRs, the default network is used": {
			got:  func(t *tenant) any { return t.Spec.NetworkProfile.ServiceCIDRs },
			want: []string{"10.96.0.0/16"},
		},
		"without pod CIDRs, the default network is used": {
			got:  func(t *tenant) any { return t.Spec.NetworkProfile.PodCIDRs },
			want: []string{"10.244.0.0/16"},
		},
		"the singular CIDR serves where the plural is absent": {
			given: func(t *tenant) { t.Spec.NetworkProfile.ServiceCIDR = "172.20.0.0/16" },
			got:   func(t *tenant) any { return t.Spec.NetworkProfile.ServiceCIDRs },
			want:  []string{"172.20.0.0/16"},
		},
		"the plural wins over the singular and keeps its order, IPv6 first": {
			given: func(t *tenant) {
				t.Spec.NetworkProfile.ServiceCIDR = "172.20.0.0/16"
				t.Spec.NetworkProfile.ServiceCIDRs = []string{"fd00::/112", "10.96.0.0/16"}
			},
			got:  func(t *tenant) any { return t.Spec.NetworkProfile.ServiceCIDRs },
			want: []string{"fd00::/112", "10.96.0.0/16"},
		},
		"a repeated CIDR counts once": {
			given: func(t *tenant) { t.Spec.NetworkProfile.PodCIDRs = []string{"10.1.0.0/16", "10.1.0.0/16"} },
			got:   func(t *tenant) any { return t.Spec.NetworkProfile.PodCIDRs },
			want:  []string{"10.1.0.0/16"},
		},
		"the DNS address is the tenth of an IPv4 network and ::10 of an IPv6 one, in the order of the networks": {
			given: func(t *tenant) {
				t.Spec.NetworkProfile.ServiceCIDRs = []string{"2001:db8:abcd::/64", "10.96.0.0/16"}
			},
			got:  func(t *tenant) any { return t.Spec.NetworkProfile.DNSServiceIPs },
			want: []string{"2001:db8:abcd::10", "10.96.0.10"},
		},
		"a CIDR with host bits counts from its network's start": {
			given: func(t *tenant) { t.Spec.NetworkProfile.ServiceCIDRs = []string{"10.96.7.7/16"} },
			got:   func(t *tenant) any { return t.Spec.NetworkProfile.DNSServiceIPs },
			want:  []string{"10.96.0.10"},
		},
		"a network too small for a tenth address gets no DNS address": {
			given: func(t *tenant) { t.Spec.NetworkProfile.ServiceCIDRs = []string{"10.96.0.0/29"} },
			got:   func(t *tenant) any { return t.Spec.NetworkProfile.DNSServiceIPs },
			want:  []string(nil),
		},
		"DNS addresses that were given stay": {
			given: func(t *tenant) { t.Spec.NetworkProfile.DNSServiceIPs = []string{"10.96.0.53"} },
			got:   func(t *tenant) any { return t.Spec.NetworkProfile.DNSServiceIPs },
			want:  []string{"10.96.0.53"},
		},
		"the port defaults to 6443": {
			got:  func(t *tenant) any { return t.Spec.NetworkProfile.Port },
			want: int32(6443),
		},
		"replicas default to two": {
			got:  func(t *tenant) any { return *t.Spec.ControlPlane.Deployment.Replicas },
			want: int32(2),
		},
		"zero replicas are a choice, not an absence": {
			given: func(t *tenant) { t.Spec.ControlPlane.Deployment.Replicas = new(int32(0)) },
			got:   func(t *tenant) any { return *t.Spec.ControlPlane.Deployment.Replicas },
			want:  int32(0),
		},
		"the strategy defaults to blue and green": {
			got: func(t *tenant) any { return t.Spec.ControlPlane.Deployment.Strategy },
			want: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: blueGreen,
			},
		},
		"a rolling update without settings is blue and green": {
			given: func(t *tenant) {
				t.Spec.ControlPlane.Deployment.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
			},
			got:  func(t *tenant) any { return t.Spec.ControlPlane.Deployment.Strategy.RollingUpdate },
			want: blueGreen,
		},
		"recreate drops the settings of rolling updates": {
			given: func(t *tenant) {
				t.Spec.ControlPlane.Deployment.Strategy = appsv1.DeploymentStrategy{
					Type: appsv1.RecreateDeploymentStrategyType, RollingUpdate: blueGreen,
				}
			},
			got:  func(t *tenant) any { return t.Spec.ControlPlane.Deployment.Strategy },
			want: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		},
		"a version without a leading v gets one": {
			given: func(t *tenant) { t.Spec.Kubernetes.Version = "1.36.3" },
			got:   func(t *tenant) any { return t.Spec.Kubernetes.Version },
			want:  "v1.36.3",
		},
		"a version with a leading v stays": {
			given: func(t *tenant) { t.Spec.Kubernetes.Version = "v1.36.3" },
			got:   func(t *tenant) any { return t.Spec.Kubernetes.Version },
			want:  "v1.36.3",
		},
		"seventeen admission plugins are on": {
			got:  func(t *tenant) any { return len(t.Spec.Kubernetes.AdmissionControllers) },
			want: 17,
		},
		"a list of admission plugins replaces the default one": {
			given: func(t *tenant) {
				t.Spec.Kubernetes.AdmissionControllers = []v1alpha1.AdmissionController{"PodSecurity"}
			},
			got:  func(t *tenant) any { return t.Spec.Kubernetes.AdmissionControllers },
			want: []v1alpha1.AdmissionController{"PodSecurity"},
		},
		"nodes are reached by internal address first": {
			got: func(t *tenant) any { return t.Spec.Kubernetes.Kubelet.PreferredAddressTypes },
			want: []v1alpha1.KubeletPreferredAddressType{
				v1alpha1.NodeInternalIP, v1alpha1.NodeExternalIP, v1alpha1.NodeHostName,
			},
		},
		"schema and user are made of namespace, name and UID": {
			got:  func(t *tenant) any { return []string{t.Spec.DataStoreSchema, t.Spec.DataStoreUsername} },
			want: []string{name.DataStoreSchema("team", "demo", "2f4c6f0e-uid"), name.DataStoreUser("team", "demo", "2f4c6f0e-uid")},
		},
		"schema and user that the tenant has stay": {
			given: func(t *tenant) {
				t.Status.Storage.Setup = v1alpha1.DataStoreSetupStatus{Schema: "2f4c6f0e-uid", User: "its-user"}
			},
			got:  func(t *tenant) any { return []string{t.Spec.DataStoreSchema, t.Spec.DataStoreUsername} },
			want: []string{"2f4c6f0e-uid", "its-user"},
		},
		"a schema that was given stays": {
			given: func(t *tenant) { t.Spec.DataStoreSchema = "mine" },
			got:   func(t *tenant) any { return []string{t.Spec.DataStoreSchema, t.Spec.DataStoreUsername} },
			want:  []string{"mine", name.DataStoreUser("team", "demo", "2f4c6f0e-uid")},
		},
		"the DataStore is left to intake": {
			got:  func(t *tenant) any { return t.Spec.DataStore },
			want: "",
		},
		"an addon that is off stays off": {
			got:  func(t *tenant) any { return t.Spec.Addons.Konnectivity },
			want: (*v1alpha1.KonnectivitySpec)(nil),
		},
		"konnectivity as a Deployment has one replica": {
			given: func(t *tenant) {
				t.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{
					Agent: v1alpha1.KonnectivityAgentSpec{Mode: v1alpha1.KonnectivityAgentModeDeployment},
				}
			},
			got:  func(t *tenant) any { return *t.Spec.Addons.Konnectivity.Agent.Replicas },
			want: int32(1),
		},
		"konnectivity listens on 8132": {
			given: func(t *tenant) { t.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{} },
			got:   func(t *tenant) any { return t.Spec.Addons.Konnectivity.Server.Port },
			want:  int32(8132),
		},
	}

	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()

			tcp := &tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "demo", UID: types.UID("2f4c6f0e-uid")}}
			if test.given != nil {
				test.given(tcp)
			}

			v1alpha1.Default(tcp)

			if diff := cmp.Diff(test.want, test.got(tcp)); diff != "" {
				t.Errorf("not as it should be (-want +got):\n%s", diff)
			}

			again := tcp.DeepCopy()
			v1alpha1.Default(again)

			if diff := cmp.Diff(tcp, again); diff != "" {
				t.Errorf("a second time changed something (-first +second):\n%s", diff)
			}
		})
	}
}
