// What wakes tenants beside facts: changes of their objects, and objects that are missing.

package workload

import (
	"context"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// watch wakes tenants whose objects changed otherwise than by this replica, or went while no replica watched. It works until
// ctx ends or a watch fails.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	s.observed.clear() // the lists that the watches begin with say it anew
	s.wake.Store(&wake)
	g, ctx := errgroup.WithContext(ctx)
	findMissing := func(partitions []int) {
		g.Go(func() error { return s.findMissing(ctx, partitions, wake) })
	}
	g.Go(func() error {
		return s.watchObjects(ctx, held, wake, kube.Services, named{kindService: name.Service}, findMissing)
	})
	g.Go(func() error {
		return s.watchObjects(ctx, held, wake, kube.Deployments, named{kindDeployment: name.Deployment}, nil)
	})
	if s.activator.Address.IsValid() {
		g.Go(func() error {
			return s.watchObjects(ctx, held, wake, kube.EndpointSlices, named{kindActivator: name.Activator}, nil)
		})
	}
	g.Go(func() error {
		return s.watchObjects(ctx, held, wake, kube.Ingresses, named{kindIngress: name.Ingress}, nil)
	})
	g.Go(func() error {
		return s.watchObjects(ctx, held, wake, kube.ConfigMaps,
			named{kindEgress: name.KonnectivityEgressSelector, kindKubeadm: name.KubeadmConfig}, nil)
	})
	g.Go(func() error {
		if !closed(ctx, s.routed) {
			return nil
		}
		return s.watchObjects(ctx, held, wake, kube.TLSRoutes, named{kindRoute: name.Route, kindKonnectivityRoute: name.KonnectivityRoute}, nil)
	})
	g.Go(func() error {
		for m := range held.Moves(ctx) {
			s.slots.keepIn(m.Held)
			s.activator.KeepIn(m.Held)
		}
		return nil
	})
	return g.Wait()
}

// named has the names that a tenant's objects of one resource have.
type named map[kind]func(tenant string) string

// watchObjects wakes the tenants whose objects of one resource changed. listed may be nil, as that of [kube.PartitionWatch].
func (s *svc) watchObjects(
	ctx context.Context, held *partition.Held, wake loop.Waker, r kube.Resource, objects named, listed func([]int),
) error {
	changed := func(c kube.Change) {
		tenant := c.Object.Labels[name.LabelName]
		for k, object := range objects {
			if tenant == "" || c.Object.Name != object(tenant) {
				continue // the other, or labelled alike by somebody else
			}
			key := events.Tenant(c.Object.Namespace, tenant)
			if s.observed.see(key, k, c.Object.ResourceVersion, c.Type == watch.Deleted) {
				wake(key, loop.Wake{Kind: wakeObject})
			}
		}
	}
	moved := func(stayed []int) {
		for k := range objects {
			s.observed.keep(k, stayed)
		}
	}
	return s.kube.WatchPartitions(ctx, r, kube.PartitionWatch{Held: held, Changed: changed, Listed: listed, Moved: moved})
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

// findMissing wakes the tenants of partitions without a Service, all that there are having been seen: both it and the Deployment may have
// gone while no replica watched, and then no watch tells. A tenant that has one of them is woken by it, too, and finds the other missing.
func (s *svc) findMissing(ctx context.Context, partitions []int, wake loop.Waker) error {
	return s.kube.TenantsIn(ctx, partitions, func(o *metav1.PartialObjectMetadata) {
		if key := events.Tenant(o.Namespace, o.Name); !s.observed.sees(key, kindService) {
			wake(key, loop.Wake{Kind: wakeMissing})
		}
	})
}
