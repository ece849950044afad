// Package addons keeps what must exist inside a tenant: the objects kubeadm would have created, CoreDNS and kube-proxy. It wakes on
// workload.available, on a changed desired state, on rotated certificates and on drift inside a tenant; it tells addons.applied,
// addons.repaired, addons.removed.
//
// [Render] and [Removed] decide; [Cluster.Apply] and [Cluster.Delete] do; [Cluster.Watch] tells when it has to be done again. Beside
// that, it looks inside a tenant for a plan (inside.go).
package addons

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	var s *svc
	err := service.Run(ctx, cfg, func(c *service.Clients) (*loop.Loop, error) {
		s = &svc{clients: c, tenants: map[events.Key]*connection{}}
		if _, err := c.Bus.AnswerQuestions(ctx, s.questions()); err != nil {
			return nil, err
		}
		return &loop.Loop{
			// Nothing is watched during a pause. What drifts meanwhile is told when the watch starts again, from the versions
			// that are in the state.
			Bus: c.Bus, Service: name.ServiceAddons, Handle: s.handle, Paused: func(t *loop.Turn) { s.drop(t.Key) }, Watch: s.watch,
		}, nil
	})
	if s != nil {
		s.keep(nil)
	}
	return err
}

// svc is the service. Its methods are safe for concurrent use; turns of one tenant don't overlap.
type svc struct {
	clients *service.Clients

	mu      sync.Mutex
	wake    loop.Waker
	tenants map[events.Key]*connection
}

// Kinds of wakes.
const (
	// claimed: this replica has the tenant's partition now.
	claimed = "claimed"
	// drifted: an object inside the tenant, named by its Ref, isn't what it should be.
	drifted = "drifted"
	// requested: a kubelet asks for a serving certificate, or has got the addresses that it asked for.
	requested = "requested"
	// counted: the status of the konnectivity agents' workload may be another.
	counted = "counted"
	// rerouted: the tenant is reached by another way than before.
	rerouted = "rerouted"
	// unreached: it is time to look again at an endpoint that didn't answer.
	unreached = "unreached"
	// rewrites: objects that are to be written anew for the encryption are left, or were refused.
	rewrites = "rewrites"
	// counting: it is time to ask whether the tenant was used.
	counting = "counting"
	// webhook: a webhook of the tenant's own kept objects from being applied.
	webhook = "webhook"
)

// watch looks once at the tenants of each partition that is gained, which another replica looked after, and lets go of those of lost ones.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	s.mu.Lock()
	s.wake = wake
	s.mu.Unlock()
	for m := range held.Moves(ctx) {
		s.keep(m.Held)
		err := s.clients.Kube.TenantsIn(ctx, m.Gained, func(o *metav1.PartialObjectMetadata) {
			wake(events.Tenant(o.Namespace, o.Name), loop.Wake{Kind: claimed})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
