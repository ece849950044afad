package store

import (
	"maps"
	"slices"
	"sync"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// Tenants is what a replica remembers of those in the partitions that it holds. The zero value has none. It is safe for concurrent use.
type Tenants[V any] struct {
	mu  sync.Mutex
	all map[events.Key]V
}

// Set remembers v for a tenant.
func (t *Tenants[V]) Set(key events.Key, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[events.Key]V{}
	}
	t.all[key] = v
}

// Get returns the zero value of one that isn't there.
func (t *Tenants[V]) Get(key events.Key) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[key]
}

// Values returns all remembered values, in no order.
func (t *Tenants[V]) Values() []V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.all))
}

// Forget forgets a tenant that is gone, or has no more what it was remembered for.
func (t *Tenants[V]) Forget(key events.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, key)
}

// Keep forgets the tenants in partitions that this replica doesn't hold.
func (t *Tenants[V]) Keep(held []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.all {
		if !slices.Contains(held, key.Partition()) {
			delete(t.all, key)
		}
	}
}
