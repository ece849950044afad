package datastore

// Wakes the tenants of a DataStore that is there now, and those of a partition that is gained whose DataStore is there: who waited for it
// before, elsewhere, is in no list of this replica's memory, and nothing was made for it that a watch would show. The record on the
// tenants' objects says whose DataStore it is.

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// arrived are the DataStores that the watch has shown. It is safe for concurrent use.
type arrived struct {
	mu    sync.Mutex
	there map[string]struct{}
	fresh map[string]struct{} // those of them whose tenants are not woken yet
	news  chan struct{}
}

func newArrived() *arrived {
	return &arrived{there: map[string]struct{}{}, fresh: map[string]struct{}{}, news: make(chan struct{}, 1)}
}

// note notes what the watch shows, and makes run wake the tenants of a DataStore that is new; it doesn't block.
func (a *arrived) note(c kube.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch c.Type {
	case watch.Deleted:
		delete(a.there, c.Object.Name)
	case watch.Added:
		a.there[c.Object.Name], a.fresh[c.Object.Name] = struct{}{}, struct{}{}
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

// run wakes tenants until ctx ends: in all partitions those of a DataStore that is new, in partitions that are gained those of any that
// is there. DataStores that arrive together, as at the start, cost one list.
func (a *arrived) run(ctx context.Context, k *kube.Client, held *partition.Held, wake loop.Waker) error {
	moves := held.Follow()
	moves.Next() // those of the beginning have all of it before them
	for {
		var partitions []int
		var names map[string]struct{}
		select {
		case <-ctx.Done():
			return nil
		case <-a.news:
			a.mu.Lock()
			names, partitions = a.fresh, held.Now()
			a.fresh = map[string]struct{}{}
			a.mu.Unlock()
		case <-moves.Changed():
			m, _ := moves.Next()
			a.mu.Lock()
			names, partitions = maps.Clone(a.there), m.Gained
			a.mu.Unlock()
		}
		if len(names) == 0 {
			continue
		}
		err := k.TenantsIn(ctx, partitions, func(o *metav1.PartialObjectMetadata) {
			on := append(name.Overrides(o.Annotations), name.DataStore(o.Labels, o.Annotations))
			if slices.ContainsFunc(on, func(n string) bool { _, here := names[n]; return here }) {
				wake(events.Tenant(o.Namespace, o.Name), loop.Wake{Kind: store.WakeDataStore})
			}
		})
		if err != nil {
			return err
		}
	}
}
