package datastore

import (
	"maps"
	"slices"
	"sync"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// tenants is what a replica remembers of those in the partitions that it holds. The zero value has none. It is safe for concurrent use.
type tenants[V any] struct {
	mu  sync.Mutex
	all map[events.Key]V
}

func (t *tenants[V]) set(key events.Key, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[events.Key]V{}
	}
	t.all[key] = v
}

// get returns the zero value of one that isn't there.
func (t *tenants[V]) get(key events.Key) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[key]
}

// values returns what is remembered, in no order.
func (t *tenants[V]) values() []V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.all))
}

// forget forgets a tenant that is gone, or has no more what it was remembered for.
func (t *tenants[V]) forget(key events.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, key)
}

// keep forgets the tenants in partitions that this replica doesn't hold.
func (t *tenants[V]) keep(held []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.all {
		if !slices.Contains(held, key.Partition()) {
			delete(t.all, key)
		}
	}
}
