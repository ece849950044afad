// Watches of a tenant's Secrets: what was seen goes into the wake, and the turn compares it with the resourceVersion in its state.

package certs

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/certs/internal/generator"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// Kinds of wakes.
const (
	// wakeSecret is that of a tenant's own Secret; its Object is the component.
	wakeSecret = "Secret"
	// wakeTaken: a Secret's name was taken, and may be free now.
	wakeTaken = "taken"
	// wakeHeld: a Secret that was deleted was kept, and may be gone now.
	wakeHeld = "held"
)

// watch runs the watches of Secrets and of KubeconfigGenerators.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.watchSecrets(ctx, held, wake) })
	g.Go(func() error { return s.watchReferenced(ctx, held, wake) })
	g.Go(func() error { return s.watchClusters(ctx, held, wake) })
	g.Go(func() error { return s.generators.Watch(ctx, held, wake) })
	g.Go(func() error {
		for m := range held.Moves(ctx) {
			s.expiries.keep(m.Held)
		}
		return nil
	})
	return g.Wait()
}

// watchSecrets wakes tenants whose Secrets of ours changed, or went while nobody watched. It keeps nothing of them.
func (s *svc) watchSecrets(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	there := map[events.Key][]string{} // components by tenant, while partitions are listed that were gained; nil at other times
	changed := func(c kube.Change) {
		tenant := pki.TenantOf(c.Object)
		component, g := pki.ComponentIn(tenant, c.Object.Name), pki.GeneratorIn(tenant, c.Object.Name)
		w := loop.Wake{Kind: wakeSecret, Object: component, Version: c.Object.ResourceVersion, Gone: c.Type == watch.Deleted}
		switch {
		case component != "":
		case g != "":
			w.Kind, w.Object = generator.WakeKubeconfig, g
		default:
			return
		}
		key := events.Tenant(c.Object.Namespace, tenant)
		if there != nil {
			there[key] = append(there[key], component)
		}
		wake(key, w)
	}
	listed := func([]int) {
		for key, components := range there {
			for component := range pki.All(key.Name) {
				if !slices.Contains(components, component) {
					wake(key, loop.Wake{Kind: wakeSecret, Object: component, Gone: true})
				}
			}
		}
		there = nil
	}
	return s.kube.WatchPartitions(ctx, kube.Secrets, kube.PartitionWatch{
		Held: held, Changed: changed, Moved: func([]int) { there = map[events.Key][]string{} }, Listed: listed,
	})
}

// drifted reports whether watches saw a Secret that isn't as the state has it. A version older than the recorded one is an
// echo as well; one that can't be compared counts as news unless it is equal.
func drifted(wakes []loop.Wake, own *state.Certs) bool {
	for _, w := range wakes {
		have, known := own.Secrets[w.Object]
		switch w.Kind {
		case wakeSecret:
		case wakeReferenced:
			continue // see referencedChanged
		case wakeCluster, wakeClusterRetry:
			continue // see clusterDue
		case generator.WakeKubeconfig:
			g, there := own.Generated[w.Object]
			if !there {
				continue // what generators ask for tells whether it is to be made, or to go
			}
			have, known = g.Secret, true
		default:
			return true
		}
		switch {
		case !known:
			if len(own.Secrets) > 0 && pki.NeedsEndpoint(w.Object) {
				continue // not issued yet, or from before the state was lost; checked once the endpoint is known
			}
			if slices.Contains(pki.Sometimes(), w.Object) {
				continue // the tenant has none, or a turn that is due makes it
			}
			return true
		case w.Version == have.ResourceVersion && !w.Gone:
		case kube.Older(w.Version, have.ResourceVersion):
		default:
			return true
		}
	}
	return false
}
