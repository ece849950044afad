package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestWaysToATenant(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		workload state.Workload
		port     int32
		want     string
	}{
		"are the Service's name and the endpoint": {
			state.Workload{Endpoint: "203.0.113.7:6443", Port: 6443}, 6443,
			"service demo.shop.svc:6443 as demo.shop.svc, endpoint 203.0.113.7:6443 as 203.0.113.7",
		},
		"behind a gateway with a port of its own, the Service keeps the API's": {
			state.Workload{Endpoint: "demo.example.com:443", Port: 443}, 6443,
			"service demo.shop.svc:6443 as demo.shop.svc, endpoint demo.example.com:443 as demo.example.com",
		},
		"with IPv6": {
			state.Workload{Endpoint: "[2001:db8::7]:6443", Port: 6443, LoadBalancer: "2001:db8::8"}, 6443,
			"service demo.shop.svc:6443 as demo.shop.svc, endpoint [2001:db8::7]:6443 as 2001:db8::7, " +
				"loadBalancer [2001:db8::8]:6443 as demo.shop.svc",
		},
		"and the load balancer's own address, where another is declared": {
			state.Workload{Endpoint: "198.51.100.1:6443", Port: 6443, LoadBalancer: "203.0.113.7"}, 6443,
			"service demo.shop.svc:6443 as demo.shop.svc, endpoint 198.51.100.1:6443 as 198.51.100.1, " +
				"loadBalancer 203.0.113.7:6443 as demo.shop.svc",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			tenant := &state.Tenant{Namespace: "shop", Name: "demo"}
			tenant.Spec.NetworkProfile.Port = test.port
			var got []string
			for _, w := range WaysTo(tenant, test.workload) {
				got = append(got, fmt.Sprintf("%s %s as %s", w.Name, w.Address, w.ServerName))
			}
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}

func TestOrderOfWays(t *testing.T) {
	t.Parallel()
	ways := []Way{{Name: state.WayService}, {Name: state.WayEndpoint}, {Name: state.WayLoadBalancer}}
	for sentence, test := range map[string]struct{ annotation, last, want string }{
		"the Service first, as Kamaji":                            {"", "", "service endpoint loadBalancer"},
		"what worked goes before":                                 {"", "loadBalancer", "loadBalancer service endpoint"},
		"what an annotation names goes first":                     {"super-admin.conf", "", "endpoint service loadBalancer"},
		"also before what worked, and the others stay":            {"admin.svc", "endpoint", "service endpoint loadBalancer"},
		"what worked goes before what nobody wants":               {"super-admin.svc", "loadBalancer", "service loadBalancer endpoint"},
		"what worked and is there no more changes nothing":        {"", "gone", "service endpoint loadBalancer"},
		"the annotation's may be the one that worked at the time": {"admin.conf", "endpoint", "endpoint service loadBalancer"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, w := range inOrder(ways, WantedWay(test.annotation), test.last) {
				got = append(got, w.Name)
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
		})
	}
}

func TestARouteRemembersTheWayThatWorked(t *testing.T) {
	t.Parallel()
	service, endpoint := Way{Name: state.WayService}, Way{Name: state.WayEndpoint}
	told := 0
	r := NewRoute([]Way{service, endpoint}, "", "", func() { told++ })
	dialed := r.Ways()
	dialed.Won(service)
	dialed.Won(service)
	if told != 0 {
		t.Error("the first way is told as another one")
	}
	dialed.Won(endpoint)
	if told != 1 || r.Taken() != state.WayEndpoint || dialed.Order()[0] != endpoint {
		t.Errorf("told %d times, taken %s, next %v", told, r.Taken(), dialed.Order())
	}
}
