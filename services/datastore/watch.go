package datastore

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// Kinds of wakes, in addition to the ones of packages store, account and data.
const (
	// wakeTaken: a Secret's name was taken, and may be free now.
	wakeTaken = "taken"
	// wakeHeld: a Secret that was deleted was kept, and may be gone now.
	wakeHeld = "held"
)

// watch runs the watches of this replica's partitions: metadata of the Secrets it made for tenants, and of DataStores,
// which every replica needs; and the look at each DataStore, and at what its tenants hold, now and then.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	s.stores.SetWaker(wake) // before anything is watched
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		components := name.ComponentDatastoreConfig + "," + name.ComponentDatastoreCertificate
		changed := func(c kube.Change) {
			wake(events.Tenant(c.Object.Namespace, c.Object.Labels[name.LabelName]), loop.Wake{
				Kind: account.WakeSecret, Object: c.Object.Labels[name.LabelComponent], Version: c.Object.ResourceVersion, Gone: c.Type == watch.Deleted,
			})
		}
		return s.kube.WatchPartitions(ctx, kube.Secrets, kube.PartitionWatch{
			Held: held, Selector: name.LabelComponent + " in (" + components + ")", Changed: changed,
		})
	})
	here := newArrived()
	g.Go(func() error {
		return s.kube.Watch(ctx, kube.DataStores, "", "", func(c kube.Change) {
			s.dataStoreChanged(c, wake)
			here.note(c)
		})
	})
	g.Go(func() error { return here.run(ctx, s.kube, held, wake) })
	g.Go(func() error { s.takeOver(ctx, held, wake); return nil })
	g.Go(func() error { s.stores.Run(ctx, held); return nil })
	return g.Wait()
}

// takeOver wakes the DataStores in partitions that are gained, and forgets the tenants in those that are lost.
func (s *svc) takeOver(ctx context.Context, held *partition.Held, wake loop.Waker) {
	for m := range held.Moves(ctx) {
		s.keeper.Keep(m.Held)
		s.accounts.Keep(m.Held)
		for _, n := range s.stores.Names() {
			s.stores.Get(n).Keep(m.Held)
			if key := events.DataStore(n); slices.Contains(m.Gained, key.Partition()) {
				wake(key, loop.Wake{Kind: store.WakeDataStore})
			}
		}
	}
}

// dataStoreChanged wakes a DataStore and, if more than its status changed, the tenants on it.
func (s *svc) dataStoreChanged(c kube.Change, wake loop.Waker) {
	st := s.stores.Get(c.Object.Name)
	changed, tenants := st.Observe(c, s.now())
	if changed || c.Type == watch.Added {
		wake(events.DataStore(c.Object.Name), loop.Wake{Kind: store.WakeDataStore})
	}
	if changed {
		st.Invalidate()
		for _, key := range tenants {
			wake(key, loop.Wake{Kind: store.WakeDataStore})
		}
		st.WakeWaiting()
	}
}
