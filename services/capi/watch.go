package capi

// What the watches see, and which control planes they wake: the control planes themselves, their tenants, their Clusters, and the Secrets
// that were made for these. Kinds of Cluster API may be defined later than this service is started, or never.

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// wakeSeen is the one kind of wake: a watch saw something of a control plane, or it is time to look again at what keeps a step from being done.
const wakeSeen = "seen"

// watch sees all control planes, for labels don't tell their partition, and what belongs to them.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	defer s.externals.begin(ctx, wake)()
	g, ctx := errgroup.WithContext(ctx)
	s.index.reset(func(r kube.Resource) {
		g.Go(func() error { s.watchInfrastructure(ctx, r, wake); return nil })
	})
	g.Go(func() error {
		defer s.index.end()
		for m := range held.Moves(ctx) {
			s.externals.keep(m.Held)
			s.index.each(func(key events.Key, _ belonging) bool { return slices.Contains(m.Gained, key.Partition()) },
				func(key events.Key) { wake(key, loop.Wake{Kind: wakeSeen}) })
		}
		return nil
	})
	g.Go(func() error {
		return s.defined(ctx, kube.KamajiControlPlanes, func(ctx context.Context) error {
			return s.watchControlPlanes(ctx, wake)
		})
	})
	g.Go(func() error {
		return s.defined(ctx, kube.Clusters, func(ctx context.Context) error {
			type version struct {
				uid        types.UID
				generation int64
			}
			seen := map[events.Key]version{} // the status of Clusters, which changes often, says nothing here
			return s.kube.Watch(ctx, kube.Clusters, "", "", func(c kube.Change) {
				of, now := events.Tenant(c.Object.Namespace, c.Object.Name), version{c.Object.UID, c.Object.Generation}
				if c.Type != watch.Deleted && seen[of] == now {
					return
				}
				if seen[of] = now; c.Type == watch.Deleted {
					delete(seen, of)
				}
				is := func(key events.Key, b belonging) bool {
					return key.Namespace == c.Object.Namespace && b.cluster == c.Object.Name
				}
				s.index.each(is, func(key events.Key) { wake(key, loop.Wake{Kind: wakeSeen}) })
			})
		})
	})
	return g.Wait()
}

// watchControlPlanes watches control planes, their tenants and Secrets.
func (s *svc) watchControlPlanes(ctx context.Context, wake loop.Waker) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.kube.Watch(ctx, kube.KamajiControlPlanes, "", "", func(c kube.Change) {
			key := events.Tenant(c.Object.Namespace, c.Object.Name)
			if c.Type == watch.Deleted {
				s.index.drop(key)
				s.externals.drop(key)
				return
			}
			s.index.note(key, clusterOf(c.Object))
			wake(key, loop.Wake{Kind: wakeSeen})
		})
	})
	g.Go(func() error {
		return s.kube.Watch(ctx, kube.TenantControlPlanes, "", "", func(c kube.Change) {
			if key := events.Tenant(c.Object.Namespace, c.Object.Name); s.index.has(key) {
				wake(key, loop.Wake{Kind: wakeSeen})
			}
		})
	})
	g.Go(func() error {
		return s.kube.Watch(ctx, kube.Secrets, "", name.LabelComponent+"="+name.ComponentCAPI, func(c kube.Change) {
			if key := events.Tenant(c.Object.Namespace, c.Object.Labels[name.LabelCAPITenant]); s.index.has(key) {
				wake(key, loop.Wake{Kind: wakeSeen})
			}
		})
	})
	return g.Wait()
}

// watchInfrastructure watches a kind of infrastructure clusters. Where the service may not, changes of these are noticed with the next of
// the Cluster.
func (s *svc) watchInfrastructure(ctx context.Context, r kube.Resource, wake loop.Waker) {
	err := s.kube.Watch(ctx, r, "", "", func(c kube.Change) {
		is := func(key events.Key, b belonging) bool {
			return key.Namespace == c.Object.Namespace && b.infrastructure == infrastructureRef{r, c.Object.Name}
		}
		s.index.each(is, func(key events.Key) {
			wake(key, loop.Wake{Kind: wakeSeen})
		})
	})
	if err != nil {
		s.log.Warn("infrastructure not watched", "kind", r.Kind, "group", r.GroupVersion.Group, "error", err)
	}
}

// defined runs a watch of a kind whenever that is defined, until ctx ends.
func (s *svc) defined(ctx context.Context, r kube.Resource, run func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	end := func() {}
	defer func() { end() }()
	running := false
	g.Go(func() error {
		return s.kube.WatchNamed(ctx, kube.CustomResourceDefinitions, "", r.Plural+"."+r.GroupVersion.Group, func(c kube.Change) {
			switch is := c.Type != watch.Deleted; {
			case is && !running:
				var sub context.Context
				sub, end = context.WithCancel(ctx)
				running = true
				g.Go(func() error { return run(sub) })
			case !is && running:
				end()
				running = false
			}
		})
	})
	return g.Wait()
}
