package workload

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestEndpoint(t *testing.T) {
	type spec = v1alpha1.TenantControlPlaneSpec
	balanced := func(ingress ...corev1.LoadBalancerIngress) corev1.LoadBalancerStatus {
		return corev1.LoadBalancerStatus{Ingress: ingress}
	}
	tests := map[string]struct {
		kind     v1alpha1.ServiceType
		spec     func(*spec)
		clusters string
		status   corev1.LoadBalancerStatus

		want    exposure
		waiting string
		reason  string
	}{
		"a LoadBalancer is waited for until it has an address": {
			kind: v1alpha1.ServiceTypeLoadBalancer, clusters: "10.0.0.7", waiting: "Service default/demo to get a LoadBalancer address",
		},
		"its first address is the endpoint": {
			kind: v1alpha1.ServiceTypeLoadBalancer, clusters: "10.0.0.7",
			status: balanced(corev1.LoadBalancerIngress{IP: "203.0.113.7"}, corev1.LoadBalancerIngress{IP: "203.0.113.8"}),
			want:   exposure{"203.0.113.7:6443", "203.0.113.7", 6443, "10.0.0.7", "203.0.113.7", ""},
		},
		"its host name is the endpoint, and the cluster IP is advertised": {
			kind: v1alpha1.ServiceTypeLoadBalancer, clusters: "10.0.0.7", status: balanced(corev1.LoadBalancerIngress{Hostname: "lb.example.com"}),
			want: exposure{"lb.example.com:6443", "lb.example.com", 6443, "10.0.0.7", "10.0.0.7", ""},
		},
		"a declared address wins and is not waited for": {
			kind: v1alpha1.ServiceTypeLoadBalancer, clusters: "10.0.0.7", spec: func(s *spec) { s.NetworkProfile.Address = "198.51.100.1" },
			want: exposure{"198.51.100.1:6443", "198.51.100.1", 6443, "10.0.0.7", "198.51.100.1", ""},
		},
		"a declared advertise address wins": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "10.0.0.7", spec: func(s *spec) { s.NetworkProfile.AdvertiseAddress = "198.51.100.1" },
			want: exposure{"10.0.0.7:6443", "10.0.0.7", 6443, "10.0.0.7", "198.51.100.1", ""},
		},
		"a ClusterIP Service is reached at its cluster IP": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "10.0.0.7",
			want: exposure{"10.0.0.7:6443", "10.0.0.7", 6443, "10.0.0.7", "10.0.0.7", ""},
		},
		"a NodePort needs a declared address": {
			kind: v1alpha1.ServiceTypeNodePort, clusters: "10.0.0.7", reason: "AddressRequired",
		},
		"a NodePort is reached at the declared address": {
			kind: v1alpha1.ServiceTypeNodePort, clusters: "10.0.0.7",
			spec: func(s *spec) { s.NetworkProfile.Address, s.NetworkProfile.Port = "198.51.100.1", 30443 },
			want: exposure{"198.51.100.1:30443", "198.51.100.1", 30443, "10.0.0.7", "198.51.100.1", ""},
		},
		"a loopback address is never advertised": {
			kind: v1alpha1.ServiceTypeLoadBalancer, clusters: "10.0.0.7", status: balanced(corev1.LoadBalancerIngress{IP: "127.20.128.1"}),
			want: exposure{"127.20.128.1:6443", "127.20.128.1", 6443, "10.0.0.7", "192.0.2.1", ""},
		},
		"an IPv6 endpoint is written in brackets": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "fd00::7", spec: func(s *spec) { s.NetworkProfile.ServiceCIDRs = []string{"fd00:1::/112"} },
			want: exposure{"[fd00::7]:6443", "fd00::7", 6443, "fd00::7", "fd00::7", ""},
		},
		"what is advertised is of the primary service network's family": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "10.0.0.7", spec: func(s *spec) { s.NetworkProfile.ServiceCIDRs = []string{"fd00:1::/112", "10.96.0.0/16"} },
			want: exposure{"10.0.0.7:6443", "10.0.0.7", 6443, "10.0.0.7", "2001:db8::1", ""},
		},
		"a Gateway's host name is the endpoint": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "10.0.0.7",
			spec: func(s *spec) {
				s.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: "demo.example.com", ParentRefs: []gatewayv1.ParentReference{{Name: "edge"}}}
			},
			want: exposure{"demo.example.com:6443", "demo.example.com", 6443, "10.0.0.7", "10.0.0.7", ""},
		},
		"at the port of its listener, if that is named": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "10.0.0.7",
			spec: func(s *spec) {
				parent := gatewayv1.ParentReference{Name: "edge", Port: new(gatewayv1.PortNumber(443))}
				s.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: "demo.example.com", ParentRefs: []gatewayv1.ParentReference{parent}}
			},
			want: exposure{"demo.example.com:443", "demo.example.com", 443, "10.0.0.7", "10.0.0.7", ""},
		},
		"an Ingress' host name is the endpoint": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "10.0.0.7",
			spec: func(s *spec) { s.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "demo.example.com:443"} },
			want: exposure{"demo.example.com:443", "demo.example.com", 443, "10.0.0.7", "10.0.0.7", ""},
		},
		"without a port of its own it has the API's": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "10.0.0.7",
			spec: func(s *spec) { s.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "demo.example.com"} },
			want: exposure{"demo.example.com:6443", "demo.example.com", 6443, "10.0.0.7", "10.0.0.7", ""},
		},
		"a port that is none is the spec's fault": {
			kind: v1alpha1.ServiceTypeClusterIP, clusters: "10.0.0.7", reason: "InvalidHostname",
			spec: func(s *spec) { s.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "demo.example.com:https"} },
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			tcp := &v1alpha1.TenantControlPlane{}
			tcp.Spec.ControlPlane.Service.ServiceType = test.kind
			if test.spec != nil {
				test.spec(&tcp.Spec)
			}
			v1alpha1.Default(tcp)
			service := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"},
				Spec:       corev1.ServiceSpec{ClusterIP: test.clusters}, Status: corev1.ServiceStatus{LoadBalancer: test.status},
			}
			got, wait, err := endpoint(&state.Tenant{Spec: tcp.Spec}, service)
			var permanent *intent.Permanent
			if test.reason != "" {
				if !errors.As(err, &permanent) || permanent.Reason != test.reason {
					t.Fatalf("error %v, want one with reason %s", err, test.reason)
				}
				return
			}
			if err != nil || got != test.want || wait.Text != test.waiting || wait.Waits() != (wait.Reason == reason.AddressPending) {
				t.Errorf("got  %+v, waiting %+v, error %v\nwant %+v, waiting %q", got, wait, err, test.want, test.waiting)
			}
		})
	}
}

func TestTheLoadBalancersOwnAddress(t *testing.T) {
	for sentence, test := range map[string]struct {
		status  []corev1.LoadBalancerIngress
		address string
		want    string
	}{
		"is known beside a declared one":                     {[]corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}, "198.51.100.1", "203.0.113.7"},
		"is known beside a gateway's host name":              {[]corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}, "demo.example.com", "203.0.113.7"},
		"may be a host name":                                 {[]corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}, "198.51.100.1", "lb.example.com"},
		"is not repeated, where the tenant is reached by it": {[]corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}, "203.0.113.7", ""},
		"is nothing without a load balancer":                 {nil, "198.51.100.1", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			service := &corev1.Service{Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: test.status}}}
			if got := balancerBeside(service, test.address); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestWhereAgentsReachTheKonnectivityServer(t *testing.T) {
	tunnel := &v1alpha1.KonnectivitySpec{Server: v1alpha1.KonnectivityServerSpec{Port: 8132}}
	for sentence, test := range map[string]struct {
		change func(*v1alpha1.TenantControlPlaneSpec)
		want   string
	}{
		"at the Service":                  {func(*v1alpha1.TenantControlPlaneSpec) {}, "203.0.113.7:8132"},
		"nowhere without the tunnel":      {func(s *v1alpha1.TenantControlPlaneSpec) { s.Addons.Konnectivity = nil }, ""},
		"where nodes are told the API is": {func(s *v1alpha1.TenantControlPlaneSpec) { s.NetworkProfile.AdvertiseAddress = "198.51.100.1" }, "198.51.100.1:8132"},
		"at the Service beside an Ingress": {func(s *v1alpha1.TenantControlPlaneSpec) {
			s.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "a.example.com"}
		}, "203.0.113.7:8132"},
		"at the host name of a gateway": {func(s *v1alpha1.TenantControlPlaneSpec) {
			s.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: "a.example.com"}
		}, "a.example.com:8132"},
	} {
		t.Run(sentence, func(t *testing.T) {
			spec := &v1alpha1.TenantControlPlaneSpec{Addons: v1alpha1.AddonsSpec{Konnectivity: tunnel}}
			test.change(spec)
			if got := konnectivityEndpoint(spec, "203.0.113.7"); got != test.want {
				t.Errorf("%q", got)
			}
		})
	}
}
