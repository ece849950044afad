package intake

// What the watches see, and whom they wake for it: tenants' objects, DataStores, and what admission policies depend on.

import (
	"context"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// Kinds of wakes.
const (
	// wakeTenant: a tenant's object was seen, with Version its fingerprint, or seen to be gone.
	wakeTenant = "tenant"
	// wakeOutside: a tenant's object is not, or no longer, this installation's.
	wakeOutside = "outside"
	// wakeObject: an object that isn't a tenant's was seen.
	wakeObject = "object"
	// wakeUse: who uses a DataStore may have changed.
	wakeUse = "use"
	// wakeDataStores: which DataStores take tenants may have changed.
	wakeDataStores = "datastores"
	// wakeDaily: the daily look may be due (daily.go).
	wakeDaily = "daily"
)

// watch sees every tenant's object: labels don't tell its partition, and DataStores are used by tenants of other installations, too. And it sees
// the installation's DataStores, and what admission policies depend on.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	s.index.reset()
	complete := func() {
		for n := range s.index.all() {
			wake(events.DataStore(n), loop.Wake{Kind: wakeUse})
		}
		s.wakeUnplaced(wake)
		wake(admissionKey, loop.Wake{Kind: wakeDataStores})
	}
	listed := func(kind string) {
		if s.index.listed(kind) {
			complete()
		}
	}
	r := newReader(s.kube, &s.index, func(n string, before, now *store) {
		wake(events.DataStore(n), loop.Wake{Kind: wakeObject})
		if reflect.DeepEqual(before, now) || !s.index.complete() {
			return
		}
		s.wakeUnplaced(wake)
		wake(admissionKey, loop.Wake{Kind: wakeDataStores})
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.lookDaily(ctx, held, wake); return nil })
	g.Go(func() error { s.takeOver(ctx, held, wake); return nil })
	if s.source != nil {
		g.Go(func() error { return s.source.follow(ctx, held) })
	}
	g.Go(func() error {
		return s.kube.Unscoped().WatchListed(ctx, kube.TenantControlPlanes, "", "",
			func(c kube.Change) { s.sawTenant(c, wake) }, func() { listed(event.TenantControlPlanes) })
	})
	g.Go(func() error {
		return s.kube.WatchListed(ctx, kube.DataStores, "", "", func(c kube.Change) { r.note(c.Object.Name) }, r.noteAll)
	})
	g.Go(func() error { r.run(ctx, func() { listed(event.DataStores) }); return nil })
	for _, one := range admissionDependsOn {
		g.Go(func() error {
			return s.kube.WatchNamed(ctx, one.resource, one.namespace, one.name, func(c kube.Change) {
				if one.name == name.AdmissionConfigMap {
					s.policies.saw(c.Object.ResourceVersion, time.Now())
				}
				wake(admissionKey, loop.Wake{Kind: wakeObject})
			})
		})
	}
	return g.Wait()
}

// takeOver wakes what is in partitions that are gained, as it was seen: of each change this replica knows, but what it woke for it was
// dropped while another held the partition, which may not have come to it.
func (s *svc) takeOver(ctx context.Context, held *partition.Held, wake loop.Waker) {
	for m := range held.Moves(ctx) {
		s.index.stay(m.Stayed)
		s.held.keep(m.Held)
		for key, is := range s.index.in(m.Gained) {
			s.wakeSeen(key, is, wake)
		}
		for n := range s.index.all() {
			if key := events.DataStore(n); slices.Contains(m.Gained, key.Partition()) {
				wake(key, loop.Wake{Kind: wakeObject})
			}
		}
		if slices.Contains(m.Gained, admissionKey.Partition()) {
			wake(admissionKey, loop.Wake{Kind: wakeObject})
		}
	}
}

// wakeSeen wakes a tenant whose object is there.
func (s *svc) wakeSeen(key events.Key, is seen, wake loop.Waker) {
	if is.ours {
		wake(key, loop.Wake{Kind: wakeTenant, Version: is.fingerprint})
	} else { // it may have left while nobody looked
		wake(key, loop.Wake{Kind: wakeOutside})
	}
}

// wakeUnplaced wakes the tenants that wait for a DataStore.
func (s *svc) wakeUnplaced(wake loop.Waker) {
	for _, key := range s.index.unplaced() {
		wake(key, loop.Wake{Kind: wakeDataStores})
	}
}

// sawTenant notes what the watch shows of a tenant and wakes whom it concerns.
func (s *svc) sawTenant(c kube.Change, wake loop.Waker) {
	o := &c.Object.ObjectMeta
	key := events.Tenant(o.Namespace, o.Name)
	now, before := seen{
		dataStore: name.DataStore(o.Labels, o.Annotations), overrides: name.OverridesValue(name.Overrides(o.Annotations)),
		ours: s.kube.InScope(kube.TenantControlPlanes, o),
	}, seen{}
	if now.ours {
		now.fingerprint = fingerprint(o)
	}
	if c.Type == watch.Deleted {
		if before, now = s.index.drop(key), (seen{}); before.ours {
			wake(key, loop.Wake{Kind: wakeTenant, Gone: true})
		}
	} else {
		if before = s.index.see(key, now); now.ours || before.ours || c.Type == watch.Added {
			s.wakeSeen(key, now, wake)
		}
	}
	if before.dataStore == now.dataStore && before.overrides == now.overrides && c.Type != watch.Deleted {
		return
	}
	for _, n := range slices.Concat(s.index.deleting(), before.on(), now.on()) {
		if n != "" {
			wake(events.DataStore(n), loop.Wake{Kind: wakeUse})
		}
	}
	if slices.ContainsFunc(before.on(), func(n string) bool { return n != "" && s.index.wasFull(n) }) {
		s.wakeUnplaced(wake)
	}
}

// hasNews reports whether a watch saw something that the tenant's spec doesn't know, or sees it later than the spec is right for: the timer
// that should have told may be lost.
func hasNews(t *loop.Turn, now time.Time) bool {
	for _, w := range t.Wakes {
		switch {
		case t.Tenant == nil && (w.Gone || w.Kind == wakeOutside):
		case t.Tenant == nil || t.Tenant.Spec.DataStore == "":
			return true
		case w.Kind == wakeTenant && seenAs(w) == t.Tenant.Seen && t.Tenant.PausedUntil.IsZero() &&
			past(earliest(t.Tenant.Sleep.Until, t.Tenant.Backups.Next), now).IsZero():
		case w.Kind == wakeDataStores, w.Kind == wakeDaily:
		default:
			return true
		}
	}
	return false
}

// seenGone is the fingerprint of an object that is gone.
const seenGone = "gone"

// seenAs is the fingerprint of the object that a wake is about.
func seenAs(w loop.Wake) string {
	if w.Gone {
		return seenGone
	}
	return w.Version
}

// fingerprint is what of an object's metadata the spec depends on; the generation stands for the object's spec.
func fingerprint(o *metav1.ObjectMeta) string {
	deleting, owned := "", ""
	if o.DeletionTimestamp != nil {
		deleting = "deleting"
	}
	if adopted(o) {
		owned = "adopted"
	}
	annotations, labels := name.ChecksumStrings(specAnnotations(o)), name.ChecksumStrings(specLabels(o))
	return events.ID(string(o.UID), generation(o), deleting, owned, annotations, labels)
}
