// What wakes tenants beside facts: changes of their objects, and objects that are missing.

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

// watch wakes tenants whose objects changed otherwise than by this replica, or went while no replica watched. It works until
// ctx ends or a watch fails.
func (s *svc) watch(ctx context.Context, partitions []int, wake loop.Waker) error {
	// The lists that the watches begin with say everything anew.
	s.observed.clear()
	s.uids.clear()
	s.slots.clear()
	s.wake.Store(&wake)
	g, ctx := errgroup.WithContext(ctx)
	services, deployments := make(chan struct{}), make(chan struct{})
	g.Go(func() error {
		listed := sync.OnceFunc(func() { close(services) })
		return s.watchObjects(ctx, partitions, wake, kube.Services, kindService, name.Service, listed)
	})
	g.Go(func() error {
		listed := sync.OnceFunc(func() { close(deployments) })
		return s.watchObjects(ctx, partitions, wake, kube.Deployments, kindDeployment, name.Deployment, listed)
	})
	g.Go(func() error {
		return s.watchObjects(ctx, partitions, wake, kube.Ingresses, kindIngress, name.Ingress, func() {})
	})
	g.Go(func() error {
		if !closed(ctx, s.routed) {
			return nil
		}
		return s.watchObjects(ctx, partitions, wake, kube.TLSRoutes, kindRoute, name.Route, func() {})
	})
	g.Go(func() error {
		if closed(ctx, services) && closed(ctx, deployments) {
			s.findMissing(ctx, partitions, wake)
		}
		return nil
	})
	return g.Wait()
}

// watchObjects wakes the tenants whose object of one kind changed. object is the name that a tenant's object has; listed is
// called whenever all that there are have been seen.
func (s *svc) watchObjects(
	ctx context.Context, partitions []int, wake loop.Waker, r kube.Resource, k kind, object func(tenant string) string, listed func(),
) error {
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

// closed waits until a channel is closed; false when ctx ends before.
func closed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// listAgain is the time until a list of tenants that failed is tried again.
const listAgain = 5 * time.Second

// findMissing wakes the tenants that have neither Service nor Deployment, which no watch tells: both may have gone while no
// replica watched. A tenant that has one of them is woken by it and finds the other missing.
func (s *svc) findMissing(ctx context.Context, partitions []int, wake loop.Waker) {
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
