// By which of its addresses a tenant's API is reached.

package addons

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// waysTo lists where the tenant's API may answer, in the order in which they are tried the first time: the Service's name, as Kamaji does,
// which leads to the pods whatever stands before them; the endpoint, for a Stoker that runs outside of the management cluster; and the
// Service's load balancer, if the endpoint is another address. At each, the server must have a certificate of the tenant's authority.
func waysTo(t *state.Tenant, w state.Workload) []kube.Way {
	service := name.ServiceHost(t.Name, t.Namespace)
	port := strconv.Itoa(int(cmp.Or(t.Spec.NetworkProfile.Port, w.Port)))
	host, _, _ := net.SplitHostPort(w.Endpoint)
	ways := []kube.Way{
		{Name: state.WayService, Address: net.JoinHostPort(service, port), ServerName: service},
		{Name: state.WayEndpoint, Address: w.Endpoint, ServerName: host},
	}
	if w.LoadBalancer != "" {
		ways = append(ways, kube.Way{Name: state.WayLoadBalancer, Address: net.JoinHostPort(w.LoadBalancer, port), ServerName: service})
	}
	return ways
}

// wantedWay is the one that leads where the kubeconfig does that an annotation chooses, "" for no choice.
func wantedWay(key string) string {
	switch {
	case key == "":
		return ""
	case strings.HasSuffix(key, ".svc"):
		return state.WayService
	}
	return state.WayEndpoint
}

// inOrder puts the way that is wanted first, if any is, then the one that was taken last.
func inOrder(ways []kube.Way, wanted, last string) []kube.Way {
	rank := func(w kube.Way) int {
		switch w.Name {
		case wanted:
			return 0
		case last:
			return 1
		}
		return 2
	}
	return slices.SortedStableFunc(slices.Values(ways), func(a, b kube.Way) int { return rank(a) - rank(b) })
}

// route is how a tenant's API is reached. It is safe for concurrent use.
type route struct {
	wanted string
	// changed is called when another way was taken than before; not for the first one.
	changed func()

	mu   sync.Mutex
	ways []kube.Way
	last string
}

// lead has the next connections be made by ways.
func (r *route) lead(ways []kube.Way) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ways = ways
}

// taken is the way that was taken last, "" for none.
func (r *route) taken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// dialed is for the client that takes the route.
func (r *route) dialed() *kube.Ways {
	return &kube.Ways{
		Order: func() []kube.Way {
			r.mu.Lock()
			defer r.mu.Unlock()
			return inOrder(r.ways, r.wanted, r.last)
		},
		Won: func(w kube.Way) {
			r.mu.Lock()
			former := r.last
			r.last = w.Name
			r.mu.Unlock()
			if former != "" && former != w.Name {
				r.changed()
			}
		},
	}
}
