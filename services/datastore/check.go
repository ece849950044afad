package datastore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// probeEvery is how often a DataStore is asked whether it is there while nobody uses it.
const probeEvery = 30 * time.Second

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
)

// check looks at a DataStore and tells the facts checked and measured unless its status says the same already. It wakes on
// changes of the DataStore, on the first failure of anybody who uses it, and now and then.
func (s *datastore) check(ctx context.Context, t *loop.Turn) error {
	st := s.stores.get(t.Key.Name)
	// Turns come seldom, and what is told must be what is.
	st.stale()
	object, opened, err := st.load(ctx)
	if err != nil {
		return err
	}
	if errors.Is(opened, errNoDataStore) {
		s.stores.forget(st)
		return nil
	}
	if now := s.now(); st.paused(now) {
		if until := st.pausedUntil(now); !until.IsZero() {
			t.Alarm(until.Sub(now), loop.Wake{Kind: wakeDataStore})
		}
		return nil
	}
	var looked error
	if opened == nil {
		looked = st.look(ctx)
		if errors.Is(looked, context.Canceled) || errors.Is(looked, fence.ErrFenced) {
			return looked
		}
	}
	v := judge(opened, looked)
	if !says(object, v) {
		// Equal findings about equal objects are one fact, whoever finds them and how often. The version is in it so
		// that a finding which comes back after another is a fact of its own.
		id := events.ID(string(object.UID), object.ResourceVersion, event.Checked, strconv.FormatBool(v.ready), v.reason)
		if st.toTell(id) {
			about := event.About{Name: object.Name, UID: string(object.UID), Generation: object.Generation}
			if err := s.bus.Tell(ctx, t.Key, object.Generation, id, event.Checked, event.DatastoreChecked{
				About: about, Driver: string(object.Spec.Driver), Ready: v.ready, Reason: v.reason, Message: v.message,
			}); err != nil {
				st.toTell("")
				return err
			}
		}
	}
	if err := s.tellUsage(ctx, t, st, object); err != nil {
		return err
	}
	var no *unsupported
	switch {
	case errors.As(opened, &no):
		return nil // the kind of a DataStore can't change
	case opened != nil:
		return &intent.Unavailable{Dependency: st.dependency(), Err: opened}
	case looked != nil:
		return looked
	}
	st.release()
	return nil
}

// tellUsage tells the fact measured about a DataStore unless its status says much the same already.
func (s *datastore) tellUsage(ctx context.Context, t *loop.Turn, st *store, object *v1alpha1.DataStore) error {
	u := st.usage()
	if !news(object.Status.Usage, u) {
		return nil
	}
	id := events.ID(string(object.UID), event.Measured, u.MeasuredAt.Format(time.RFC3339))
	if !st.toTellUsage(id) {
		return nil
	}
	about := event.About{Name: object.Name, UID: string(object.UID), Generation: object.Generation}
	err := s.bus.Tell(ctx, t.Key, object.Generation, id, event.Measured, event.DatastoreMeasured{
		About: about, DataStore: object.Name, Bytes: u.Bytes, Keys: u.Keys, LatencyMilliseconds: u.LatencyMilliseconds, MeasuredAt: u.MeasuredAt.Time,
	})
	if err != nil {
		st.toTellUsage("")
	}
	return err
}

// says reports whether the status of a DataStore already tells a verdict.
func says(object *v1alpha1.DataStore, v verdict) bool {
	if object.Status.Ready != v.ready || object.Status.ObservedGeneration != object.Generation {
		return false
	}
	return slices.ContainsFunc(object.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.DataStoreConditionValid && c.Reason == v.reason
	})
}

// watch runs the watches of this replica's partitions: metadata of the Secrets it made for tenants, and of DataStores,
// which every replica needs; and the look at each DataStore, and at what its tenants hold, now and then.
func (s *datastore) watch(ctx context.Context, partitions []int, wake loop.Waker) error {
	s.stores.mu.Lock()
	s.stores.wake = wake
	s.stores.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		selector := kube.InPartitions(partitions) + "," + name.LabelComponent + " in (" + name.ComponentDatastoreConfig + "," + name.ComponentDatastoreCertificate + ")"
		return s.kube.Watch(ctx, kube.Secrets, "", selector, func(c kube.Change) {
			wake(events.Tenant(c.Object.Namespace, c.Object.Labels[name.LabelName]), loop.Wake{
				Kind: wakeSecret, Object: c.Object.Labels[name.LabelComponent], Version: c.Object.ResourceVersion, Gone: c.Type == watch.Deleted,
			})
		})
	})
	g.Go(func() error {
		return s.kube.Watch(ctx, kube.DataStores, "", "", func(c kube.Change) {
			st := s.stores.get(c.Object.Name)
			news, users := st.saw(c, s.now())
			if news || c.Type == watch.Added { // a partition may be new to this replica
				wake(events.DataStore(c.Object.Name), loop.Wake{Kind: wakeDataStore})
			}
			if news {
				st.stale()
				for _, key := range users {
					wake(key, loop.Wake{Kind: wakeDataStore})
				}
				st.release()
			}
		})
	})
	g.Go(func() error { s.references.run(ctx); return nil })
	g.Go(func() error { s.probe(ctx, wake); return nil })
	g.Go(func() error { s.sample(ctx, partitions); return nil })
	return g.Wait()
}

// probe looks at each DataStore now and then, and more often at those that are away or wrong, so that who waits for one
// goes on soon after it is back. Every replica does so for itself: connections and credentials are its own.
func (s *datastore) probe(ctx context.Context, wake loop.Waker) {
	tick := time.NewTicker(longestPause)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var g errgroup.Group
		for _, name := range s.stores.names() {
			st := s.stores.get(name)
			if st.paused(s.now()) {
				continue
			}
			all := n%int(probeEvery/longestPause) == 0
			if all {
				st.stale()
				wake(events.DataStore(name), loop.Wake{Kind: wakeDataStore})
			}
			g.Go(func() error {
				// What is wrong is told by the turns of those who need it.
				_, opened, err := st.load(ctx)
				if err == nil && opened == nil && (all || st.isAway()) && st.look(ctx) == nil && all {
					st.survey(ctx)
				}
				return nil
			})
		}
		_ = g.Wait()
	}
}
