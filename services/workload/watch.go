// What wakes tenants beside facts: their objects, and objects that are missing.

package workload

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// watch wakes tenants whose objects changed otherwise than by this replica, or went while no replica watched.
func (s *svc) watch(ctx context.Context, partitions []int, wake loop.Waker) error {
	// The lists that the watches begin with say everything anew.
	s.observed.clear()
	s.slots.clear()
	s.wake.Store(&wake)
	g, ctx := errgroup.WithContext(ctx)
	follow := func(r kube.Resource, k kind, object func(tenant string) string, listed func()) error {
		return s.kube.WatchListed(ctx, r, "", kube.InPartitions(partitions), func(c kube.Change) {
			tenant := c.Object.Labels[name.LabelName]
			if tenant == "" || c.Object.Name != object(tenant) {
				return // labelled alike by somebody else
			}
			key := events.Tenant(c.Object.Namespace, tenant)
			if s.observed.see(key, k, c.Object.ResourceVersion, c.Type == watch.Deleted) {
				wake(key, loop.Wake{Kind: wakeObject})
			}
		}, listed)
	}
	services, deployments := make(chan struct{}), make(chan struct{})
	g.Go(func() error {
		return follow(kube.Services, kindService, name.Service, sync.OnceFunc(func() { close(services) }))
	})
	g.Go(func() error {
		return follow(kube.Deployments, kindDeployment, name.Deployment, sync.OnceFunc(func() { close(deployments) }))
	})
	g.Go(func() error { return follow(kube.Ingresses, kindIngress, name.Ingress, func() {}) })
	g.Go(func() error {
		if !passed(ctx, s.routed) {
			return nil
		}
		return follow(kube.TLSRoutes, kindRoute, name.Route, func() {})
	})
	g.Go(func() error {
		if passed(ctx, services) && passed(ctx, deployments) {
			s.missing(ctx, partitions, wake)
		}
		return nil
	})
	return g.Wait()
}

// passed waits for a door to open; false when ctx ends before.
func passed(ctx context.Context, door <-chan struct{}) bool {
	select {
	case <-door:
		return true
	case <-ctx.Done():
		return false
	}
}

// listAgain is the time until a list of tenants that failed is tried again.
const listAgain = 5 * time.Second

// missing wakes the tenants that have neither Service nor Deployment, which no watch tells: both may have gone while no
// replica watched. A tenant that has one of them is woken by it and finds the other missing.
func (s *svc) missing(ctx context.Context, partitions []int, wake loop.Waker) {
	for {
		tenants, err := s.kube.Metadata(ctx, kube.TenantControlPlanes, kube.InPartitions(partitions))
		for i := range tenants {
			key := events.Tenant(tenants[i].Namespace, tenants[i].Name)
			if !s.observed.any(key) {
				wake(key, loop.Wake{Kind: wakeMissing})
			}
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Warn("could not list tenants to see whose objects are missing, trying again", "error", err)
		again := time.NewTimer(listAgain)
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
	}
}
