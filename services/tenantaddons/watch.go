package tenantaddons

// What the watches see in the management cluster, and whom they wake.

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// Kinds of wakes.
const (
	// wakeSeen: a watch saw something of a TenantAddon or of what it refers to, or of what an AddonRelease asks of its tenant.
	wakeSeen = "seen"
	// wakeStands: an AddonRelease of the TenantAddon stands otherwise.
	wakeStands = "stands"
	// wakeInside: something inside the tenant is otherwise than it must be, or stands otherwise.
	wakeInside = "inside"
	// wakeLook: it is time to look again.
	wakeLook = "look"
)

// watch sees all TenantAddons, AddonReleases and tenants.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	g, ctx := errgroup.WithContext(ctx)
	lists := []string{kube.TenantControlPlanes.Kind, kube.TenantAddons.Kind, kube.AddonReleases.Kind}
	if s.fleet() {
		lists = append(lists, kube.Namespaces.Kind)
	}
	s.index.reset(lists...)
	s.begin(wake)
	s.referred.begin(func(r ref) context.CancelFunc {
		within, end := context.WithCancel(ctx)
		g.Go(func() error { s.watchReferred(within, r, wake); return nil })
		return end
	})
	// Whoever is woken before all is known finds that out, and is woken once more then.
	listed := func(r kube.Resource) func() {
		return func() {
			if s.index.noteListed(r.Kind) {
				s.wakeAll(wake, nil)
			}
		}
	}
	g.Go(func() error {
		for m := range held.Moves(ctx) {
			s.keep(m.Held, m.Stayed)
			s.wakeAll(wake, m.Gained)
		}
		s.referred.end()
		return nil
	})
	g.Go(func() error {
		return s.kube.WatchListed(ctx, kube.TenantControlPlanes, "", "", s.sawTenant(wake), listed(kube.TenantControlPlanes))
	})
	g.Go(func() error {
		return s.kube.WatchListed(ctx, kube.TenantAddons, "", "", s.sawAddon(wake), listed(kube.TenantAddons))
	})
	g.Go(func() error {
		return s.kube.WatchListed(ctx, kube.AddonReleases, "", "", s.sawRelease(wake), listed(kube.AddonReleases))
	})
	if s.fleet() {
		g.Go(func() error {
			return s.kube.WatchListed(ctx, kube.Namespaces, "", "", func(c kube.Change) {
				if s.index.noteNamespace(c.Object, c.Type == watch.Deleted) {
					s.wakeAddons(wake, s.index.addonsFor(s.fleetNamespace, s.fleetNamespace))
				}
			}, listed(kube.Namespaces))
		})
	}
	return g.Wait()
}

func (s *svc) sawTenant(wake loop.Waker) func(kube.Change) {
	return func(c kube.Change) {
		if s.index.noteTenant(c.Object, c.Type == watch.Deleted) {
			s.wakeAddons(wake, s.index.addonsFor(c.Object.Namespace, s.fleetNamespace))
		}
	}
}

func (s *svc) sawAddon(wake loop.Waker) func(kube.Change) {
	type version struct {
		uid        types.UID
		generation int64
		deleting   bool
	}
	seen := map[types.NamespacedName]version{} // the status, which the service writes itself, says nothing here
	return func(c kube.Change) {
		of := types.NamespacedName{Namespace: c.Object.Namespace, Name: c.Object.Name}
		is := version{c.Object.UID, c.Object.Generation, c.Object.DeletionTimestamp != nil}
		gone := c.Type == watch.Deleted
		if s.index.noteAddon(of, gone); !gone && seen[of] == is {
			return
		}
		if seen[of] = is; gone {
			delete(seen, of)
			s.forget(of)
		}
		wake(events.TenantAddon(of.Namespace, of.Name), loop.Wake{Kind: wakeSeen})
	}
}

func (s *svc) sawRelease(wake loop.Waker) func(kube.Change) {
	return func(c kube.Change) {
		is, asks := s.index.noteRelease(c.Object, c.Type == watch.Deleted)
		wake(events.TenantAddon(is.addon.Namespace, is.addon.Name), loop.Wake{Kind: wakeStands})
		if asks {
			wake(events.Tenant(is.tenant.Namespace, is.tenant.Name), loop.Wake{Kind: wakeSeen})
		}
	}
}

func (s *svc) wakeAddons(wake loop.Waker, of []types.NamespacedName) {
	for _, a := range of {
		wake(events.TenantAddon(a.Namespace, a.Name), loop.Wake{Kind: wakeSeen})
	}
}

// wakeAll wakes the TenantAddons of some partitions, nil for all, and the tenants that have any.
func (s *svc) wakeAll(wake loop.Waker, partitions []int) {
	in := func(key events.Key) bool { return partitions == nil || slices.Contains(partitions, key.Partition()) }
	for _, a := range s.index.addonsFor("", "") {
		if key := events.TenantAddon(a.Namespace, a.Name); in(key) {
			wake(key, loop.Wake{Kind: wakeSeen})
		}
	}
	s.index.mu.Lock()
	var keys []events.Key
	for t := range s.index.ofTenant {
		if key := events.Tenant(t.Namespace, t.Name); in(key) {
			keys = append(keys, key)
		}
	}
	s.index.mu.Unlock()
	for _, key := range keys {
		wake(key, loop.Wake{Kind: wakeSeen})
	}
}

// ref is an object that TenantAddons refer to.
type ref struct {
	kind kube.Resource
	of   types.NamespacedName
}

// referred watches the objects that TenantAddons refer to, each by its name. It is safe for concurrent use.
type referred struct {
	mu sync.Mutex
	// by has who refers to an object, ends what ends its watch; start starts one, nil while nothing is watched.
	by    map[ref]map[types.NamespacedName]struct{}
	ends  map[ref]context.CancelFunc
	start func(ref) context.CancelFunc
}

// begin has what is referred to watched from now on.
func (r *referred) begin(start func(ref) context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start, r.ends = start, map[ref]context.CancelFunc{}
	for of := range r.by {
		r.ends[of] = start(of)
	}
}

// end has nothing watched any more.
func (r *referred) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range r.ends {
		end()
	}
	r.start, r.ends = nil, nil
}

// follow notes what a TenantAddon refers to, which is all that it does.
func (r *referred) follow(addon types.NamespacedName, refs ...ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[ref]map[types.NamespacedName]struct{}{}
	}
	for of, by := range r.by {
		if _, has := by[addon]; !has || slices.Contains(refs, of) {
			continue
		}
		if delete(by, addon); len(by) == 0 {
			delete(r.by, of)
			if end := r.ends[of]; end != nil {
				end()
				delete(r.ends, of)
			}
		}
	}
	for _, of := range refs {
		if r.by[of] == nil {
			r.by[of] = map[types.NamespacedName]struct{}{}
			if r.start != nil {
				r.ends[of] = r.start(of)
			}
		}
		r.by[of][addon] = struct{}{}
	}
}

// by are the TenantAddons that refer to an object.
func (r *referred) referring(of ref) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []types.NamespacedName
	for a := range r.by[of] {
		all = append(all, a)
	}
	return all
}

// watchReferred wakes those who refer to an object when it changes, and as the watch begins.
func (s *svc) watchReferred(ctx context.Context, r ref, wake loop.Waker) {
	for pause := watchPause; ctx.Err() == nil; pause = min(2*pause, longestWatchPause) {
		err := s.kube.WatchNamed(ctx, r.kind, r.of.Namespace, r.of.Name, func(kube.Change) { s.wakeAddons(wake, s.referred.referring(r)) })
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("what TenantAddons refer to is not watched", "kind", r.kind.Kind, "namespace", r.of.Namespace, "name", r.of.Name, "again", pause, "error", err)
		again := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
	}
}
