// By which of its addresses a tenant's API is reached.

package kube

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// WaysTo lists where a tenant's API may answer, in the order in which they are tried the first time: the Service's name, as Kamaji does,
// which leads to the pods whatever stands before them; the endpoint, for a Stoker that runs outside of the management cluster; and the
// Service's load balancer, if the endpoint is another address. At each, the server must have a certificate of the tenant's authority.
func WaysTo(t *state.Tenant, w state.Workload) []Way {
	service := name.ServiceHost(t.Name, t.Namespace)
	port := strconv.Itoa(int(cmp.Or(t.Spec.NetworkProfile.Port, w.Port)))
	host, _, _ := net.SplitHostPort(w.Endpoint)
	ways := []Way{
		{Name: state.WayService, Address: net.JoinHostPort(service, port), ServerName: service},
		{Name: state.WayEndpoint, Address: w.Endpoint, ServerName: host},
	}
	if w.LoadBalancer != "" {
		ways = append(ways, Way{Name: state.WayLoadBalancer, Address: net.JoinHostPort(w.LoadBalancer, port), ServerName: service})
	}
	return ways
}

// WantedWay is the one that leads where the kubeconfig does that a tenant's annotation [name.AnnotationKubeconfigSecretKey] chooses, "" for
// no choice.
func WantedWay(key string) string {
	switch {
	case key == "":
		return ""
	case strings.HasSuffix(key, ".svc"):
		return state.WayService
	}
	return state.WayEndpoint
}

// inOrder puts the way that is wanted first, if any is, then the one that was taken last.
func inOrder(ways []Way, wanted, last string) []Way {
	rank := func(w Way) int {
		switch w.Name {
		case wanted:
			return 0
		case last:
			return 1
		}
		return 2
	}
	return slices.SortedStableFunc(slices.Values(ways), func(a, b Way) int { return rank(a) - rank(b) })
}

// Route is how a tenant's API is reached, by whatever connections there are at a time. It is safe for concurrent use.
type Route struct {
	wanted  string
	changed func()

	mu   sync.Mutex
	ways []Way
	last string
}

// NewRoute makes a route.
//   - wanted is the way that is tried first ([WantedWay]), last the one that was taken before anybody here remembers; "" for none;
//   - changed is called when another way was taken than before, not for the first one; nil for nobody.
func NewRoute(ways []Way, wanted, last string, changed func()) *Route {
	return &Route{ways: ways, wanted: wanted, last: last, changed: changed}
}

// Wanted is the way that is tried first, "" for none.
func (r *Route) Wanted() string { return r.wanted }

// Lead has the next connections be made by ways.
func (r *Route) Lead(ways []Way) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ways = ways
}

// Taken is the way that was taken last, "" for none.
func (r *Route) Taken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Ways are for the client that takes the route.
func (r *Route) Ways() *Ways {
	return &Ways{
		Order: func() []Way {
			r.mu.Lock()
			defer r.mu.Unlock()
			return inOrder(r.ways, r.wanted, r.last)
		},
		Won: func(w Way) {
			r.mu.Lock()
			former := r.last
			r.last = w.Name
			r.mu.Unlock()
			if r.changed != nil && former != "" && former != w.Name {
				r.changed()
			}
		},
	}
}
