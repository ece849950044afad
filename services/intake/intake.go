// Package intake is the way in. It turns commands into objects of the management cluster by server-side apply, so that
// every rule sits in the API server once, and objects, whoever wrote them, into the spec the other services work from.
package intake

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Config of the service.
type Config struct {
	service.Config
	// DataStore is for tenants that name none.
	DataStore string
	// Events is the way in for CloudEvents over HTTP.
	Events HTTP
}

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Events.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var door sync.WaitGroup
	defer door.Wait()
	defer cancel(nil)
	return service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		d, err := cfg.Events.open(ctx, c)
		if err != nil {
			return nil, err
		}
		if d != nil {
			door.Go(func() {
				if err := d.serve(ctx); err != nil {
					cancel(err)
				}
			})
		}
		s := &intake{kube: c.Kube, bus: c.Bus, log: c.Log, fallback: cfg.DataStore, namespace: cfg.Namespace, watchFilter: cfg.WatchFilter}
		return &loop.Loop{
			Bus: c.Bus, Service: name.ServiceIntake, Handle: s.handle, Known: s.index.known, Watch: s.watch, Ensure: c.Bus.Provision, Commands: true,
		}, nil
	})
}

type intake struct {
	kube     *kube.Client
	bus      *events.Bus
	log      *slog.Logger
	fallback string // the DataStore for tenants that name none
	// namespace and watchFilter limit what may be commanded; empty: all.
	namespace, watchFilter string
	index                  index
	written                written
}

// handle does what each event asks for, in order, and then brings the spec in line with the object.
func (s *intake) handle(ctx context.Context, t *loop.Turn) error {
	now, due := time.Now(), false
	for _, e := range t.Events {
		var err error
		switch {
		case e.Service == "":
			err = s.command(ctx, t, e)
		case e.Service == name.ServiceCerts && e.What == event.Removed:
			err = s.finish(ctx, t, e)
		case e.Service == name.ServiceDatastore && e.What == event.Withdrawn && e.Err == nil:
			err = s.withdrawn(ctx, t, e)
		case e.Service == name.ServiceIntake && e.What == event.Due && e.Err == nil:
			// By the server's clock it is time; by this one it may not be yet.
			due = true
			if e.Time().After(now) {
				now = e.Time()
			}
		}
		if err != nil {
			return err
		}
	}
	switch {
	case t.Key == admissionKey:
		return s.admit(ctx)
	case t.Key.IsTenant() && (due || s.news(t)):
		return s.sync(ctx, t, now)
	case t.Key.Kind == event.DataStores && (due || len(t.Reasons) > 0):
		return s.keep(ctx, t, now)
	}
	return nil
}

// Reasons given by watches besides fingerprints of tenants.
const (
	// gone: the object is no more. outside: it is not, or no longer, this installation's.
	gone    = "gone"
	outside = "outside"
	// changed: an object that isn't a tenant's. usage: who uses a DataStore. stores: what DataStores there are for tenants.
	changed = "changed"
	usage   = "usage"
	stores  = "datastores"
)

// watch sees every tenant's object: those written by kubectl carry no partition label yet, and DataStores are used by
// tenants of other installations, too. And it sees the installation's DataStores, and what admission policies depend on.
func (s *intake) watch(ctx context.Context, _ []int, wake loop.Waker) error {
	s.index.begin()
	complete := func() {
		for n := range s.index.all() {
			wake(events.DataStore(n), usage)
		}
		for _, key := range s.index.unplaced() {
			wake(key, stores)
		}
		wake(admissionKey, stores)
	}
	listed := func(kind string) {
		if s.index.listed(kind) {
			complete()
		}
	}
	r := newReader(s.kube, &s.index, func(n string, before, now *store) {
		wake(events.DataStore(n), changed)
		if reflect.DeepEqual(before, now) || !s.index.complete() {
			return
		}
		for _, key := range s.index.unplaced() {
			wake(key, stores)
		}
		wake(admissionKey, stores)
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.kube.Unscoped().WatchListed(ctx, kube.TenantControlPlanes, "", "",
			func(c kube.Change) { s.saw(c, wake) }, func() { listed(event.TenantControlPlanes) })
	})
	g.Go(func() error {
		return s.kube.WatchListed(ctx, kube.DataStores, "", "", func(c kube.Change) { r.note(c.Object.Name) }, r.noteAll)
	})
	g.Go(func() error { r.run(ctx, func() { listed(event.DataStores) }); return nil })
	for _, one := range admissionDependsOn {
		g.Go(func() error {
			return s.kube.WatchOne(ctx, one.resource, one.namespace, one.name, func(kube.Change) { wake(admissionKey, changed) })
		})
	}
	return g.Wait()
}

// saw notes what the watch shows of a tenant and wakes whom it concerns.
func (s *intake) saw(c kube.Change, wake loop.Waker) {
	o := &c.Object.ObjectMeta
	key := events.Tenant(o.Namespace, o.Name)
	now, before := seen{
		dataStore: o.Labels[name.LabelDataStore], overrides: name.OverridesValue(name.Overrides(o.Annotations)), ours: s.kube.InScope(kube.TenantControlPlanes, o),
	}, seen{}
	reason := ""
	if c.Type == watch.Deleted {
		before, now = s.index.drop(key), seen{}
		if before.ours {
			reason = gone
		}
	} else {
		before = s.index.see(key, now)
		switch {
		case now.ours:
			reason = fingerprint(o)
		case before.ours, c.Type == watch.Added: // it may have left while nobody looked
			reason = outside
		}
	}
	if reason != "" {
		wake(key, reason)
	}
	if before.dataStore == now.dataStore && before.overrides == now.overrides && c.Type != watch.Deleted {
		return
	}
	for _, n := range slices.Concat(s.index.deleting(), before.on(), now.on()) {
		if n != "" {
			wake(events.DataStore(n), usage)
		}
	}
	if slices.ContainsFunc(before.on(), func(n string) bool { return n != "" && s.index.wasFull(n) }) {
		for _, key := range s.index.unplaced() {
			wake(key, stores)
		}
	}
}

// news reports whether a watch saw something the spec doesn't know.
func (s *intake) news(t *loop.Turn) bool {
	for _, r := range t.Reasons {
		switch {
		case t.Tenant == nil && (r == gone || r == outside):
		case t.Tenant != nil && r == t.Tenant.Seen && t.Tenant.Spec.DataStore != "" && t.Tenant.PausedUntil.IsZero():
		case t.Tenant != nil && r == stores && t.Tenant.Spec.DataStore != "":
		default:
			return true
		}
	}
	return false
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
	return events.ID(string(o.UID), generation(o), deleting, owned, name.ChecksumStrings(specAnnotations(o)), name.ChecksumStrings(specLabels(o)))
}
