package datastore

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// Kinds of wakes.
const (
	// wakeDataStore: a DataStore changed, or is back, or is to be looked at.
	wakeDataStore = "datastore"
	// wakeSecret: a Secret made for a tenant changed; Object is its component.
	wakeSecret = "secret"
	// wakeAccount: schema, user or grants in a database changed; Object is the DataStore, Version the account's fingerprint now.
	wakeAccount = "account"
	// wakeSize: a tenant, or a DataStore, holds notably more or less than was reported last.
	wakeSize = "size"
	// wakeTaken: a Secret's name was taken, and may be free now.
	wakeTaken = "taken"
	// wakeMove: the mover of the tenant's data has come further, or there is room for one.
	wakeMove = "move"
	// wakeUsage: it is time to read what a tenant with a quota keeps.
	wakeUsage = "usage"
	// wakeJob: a job of the tenant has come further, or is to be tried again.
	wakeJob = "job"
	// wakeHeld: a Secret that was deleted was kept, and may be gone now.
	wakeHeld = "held"
)

// probeEvery is how often a DataStore is looked at while nobody uses it.
const probeEvery = 30 * time.Second

// watch runs the watches of this replica's partitions: metadata of the Secrets it made for tenants, and of DataStores,
// which every replica needs; and the look at each DataStore, and at what its tenants hold, now and then.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	s.stores.mu.Lock()
	s.stores.wake = wake
	s.stores.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		components := name.ComponentDatastoreConfig + "," + name.ComponentDatastoreCertificate
		changed := func(c kube.Change) {
			wake(events.Tenant(c.Object.Namespace, c.Object.Labels[name.LabelName]), loop.Wake{
				Kind: wakeSecret, Object: c.Object.Labels[name.LabelComponent], Version: c.Object.ResourceVersion, Gone: c.Type == watch.Deleted,
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
	g.Go(func() error { s.references.run(ctx); return nil })
	g.Go(func() error { s.probe(ctx, wake); return nil })
	g.Go(func() error { s.sample(ctx, held); return nil })
	return g.Wait()
}

// takeOver wakes the DataStores in partitions that are gained, and forgets the tenants in those that are lost.
func (s *svc) takeOver(ctx context.Context, held *partition.Held, wake loop.Waker) {
	for m := range held.Moves(ctx) {
		s.failing.keep(m.Held)
		s.usages.keep(m.Held)
		for _, n := range s.stores.names() {
			s.stores.get(n).keep(m.Held)
			if key := events.DataStore(n); slices.Contains(m.Gained, key.Partition()) {
				wake(key, loop.Wake{Kind: wakeDataStore})
			}
		}
	}
}

// dataStoreChanged wakes a DataStore and, if more than its status changed, the tenants on it.
func (s *svc) dataStoreChanged(c kube.Change, wake loop.Waker) {
	st := s.stores.get(c.Object.Name)
	changed, tenants := st.observe(c, s.now())
	if changed || c.Type == watch.Added {
		wake(events.DataStore(c.Object.Name), loop.Wake{Kind: wakeDataStore})
	}
	if changed {
		st.invalidate()
		for _, key := range tenants {
			wake(key, loop.Wake{Kind: wakeDataStore})
		}
		st.wakeWaiting()
	}
}

// probe looks at each DataStore now and then, and more often at those that are away or wrong, so that who waits for one
// goes on soon after it is back. Every replica does so for itself: connections and credentials are its own.
func (s *svc) probe(ctx context.Context, wake loop.Waker) {
	tick := time.NewTicker(longestPause)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all := n%int(probeEvery/longestPause) == 0
		var g errgroup.Group
		for _, name := range s.stores.names() {
			st := s.stores.get(name)
			if st.paused(s.now()) {
				continue
			}
			if all {
				st.invalidate()
				wake(events.DataStore(name), loop.Wake{Kind: wakeDataStore})
			}
			g.Go(func() error {
				// What is wrong is reported by the turns of those who need it.
				_, opened, err := st.load(ctx)
				if err == nil && opened == nil && (all || st.isAway()) && st.ping(ctx) == nil && all {
					st.survey(ctx)
				}
				return nil
			})
		}
		_ = g.Wait()
	}
}
