package datastore

// Wakes the tenants of a DataStore that is there now: who waited for it before this replica began is in no list of its memory, and
// nothing was made for it that a watch would show. The record on the tenants' objects says whose DataStore it is.

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// arrived are DataStores that the watch has shown, whose tenants are not woken yet. It is safe for concurrent use.
type arrived struct {
	mu    sync.Mutex
	names map[string]struct{}
	news  chan struct{}
}

func newArrived() *arrived {
	return &arrived{names: map[string]struct{}{}, news: make(chan struct{}, 1)}
}

// note makes run wake the tenants of a DataStore; it doesn't block.
func (a *arrived) note(n string) {
	a.mu.Lock()
	a.names[n] = struct{}{}
	a.mu.Unlock()
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// run wakes tenants of the partitions until ctx ends. DataStores that arrive together, as at the start, cost one list.
func (a *arrived) run(ctx context.Context, k *kube.Client, partitions []int, wake loop.Waker) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.news:
		}
		a.mu.Lock()
		names := maps.Clone(a.names)
		clear(a.names)
		a.mu.Unlock()
		err := kube.Each(ctx, k, kube.TenantControlPlanes, kube.InPartitions(partitions), func(o *struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}) {
			on := append(name.Overrides(o.Metadata.Annotations), o.Metadata.Labels[name.LabelDataStore])
			if slices.ContainsFunc(on, func(n string) bool { _, here := names[n]; return here }) {
				wake(events.Tenant(o.Metadata.Namespace, o.Metadata.Name), loop.Wake{Kind: wakeDataStore})
			}
		})
		if err == nil {
			continue
		}
		for n := range names { // the API server is away, and says so on /readyz
			a.note(n)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
