// Package intake is the way in. It turns commands into objects of the management cluster by server-side apply, so that every rule
// sits in the API server once, and objects, whoever wrote them, into the spec that the other services work from.
//
// run.go decides what an event or a wake leads to. Commands: command.go (what is checked, and their end), verbs.go, apply.go,
// change.go, delete.go, object.go (their data), refusal.go (their errors), http.go and access.go (the way in by HTTP). Tenants:
// spec.go, schedule.go (sleep), inplace.go (set back to a backup), place.go (which DataStore), remove.go. DataStores: datastore.go, capacity.go, admission.go. What a replica knows by its
// watches: watch.go, index.go. What it answers the operator: questions.go, dead.go, replicas.go, resync.go; and whoever may command a
// tenant: plan.go, verdict.go. What Kamaji made is left alone until it is adopted: held.go. Objects of a remote API: remote.go.
package intake

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/mirror"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Config of the service.
type Config struct {
	service.Config
	// DataStore is for tenants that name none.
	DataStore string
	// ForbiddenNamespaces are those in which nothing is commanded, beside kube-* and stoker-system: names, or beginnings of names with
	// an asterisk, separated by commas.
	ForbiddenNamespaces string
	// Events is the way in for CloudEvents over HTTP.
	Events HTTP
	// Remote is where objects come from that are made here.
	Remote Remote
}

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Events.check(); err != nil {
		return err
	}
	forbidden, err := forbiddenNamespaces(cfg.ForbiddenNamespaces)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel(nil)
	return service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		h, err := cfg.Events.open(ctx, c)
		if err != nil {
			return nil, err
		}
		if h != nil {
			serving.Go(func() {
				if err := h.serve(ctx); err != nil {
					cancel(err)
				}
			})
		}
		s := &intake{
			kube: c.Kube, bus: c.Bus, log: c.Log, fallback: cfg.DataStore, namespace: cfg.Namespace, watchFilter: cfg.WatchFilter,
			forbidden: forbidden,
		}
		c.Metrics.MustRegister(s.held.metric())
		if s.source, err = newSource(cfg, c.Kube, forbidden, c.Log, mirror.NewMetrics(c.Metrics)); err != nil {
			return nil, err
		}
		if _, err := c.Bus.AnswerQuestions(ctx, s.questions()); err != nil {
			return nil, err
		}
		return &loop.Loop{
			Bus: c.Bus, Service: name.ServiceIntake, Handle: s.handle, Known: s.index.known, Watch: s.watch,
			Ensure: c.Bus.Provision, Commands: true,
		}, nil
	})
}

// intake is one replica of the service.
type intake struct {
	kube     *kube.Client
	bus      *events.Bus
	log      *slog.Logger
	fallback string // the DataStore for tenants that name none
	// namespace and watchFilter limit what may be commanded; empty: all.
	namespace, watchFilter string
	forbidden              forbidden
	index                  index
	policies               policies
	written                written
	stalls                 stalls
	daily                  daily
	held                   heldTenants
	source                 *source // nil for none
}

// handle does what each event asks for, in order, and then brings the spec in line with the object. A command is carried out also when
// a fact before it can't be worked on now: the other commands of the partition would wait with it.
func (s *intake) handle(ctx context.Context, t *loop.Turn) error {
	now, due := time.Now(), false
	var failed error
	for _, e := range t.Events {
		var err error
		switch {
		case e.IsCommand():
			err = s.command(ctx, t, e)
		case e.Service == event.RemovedBefore(name.ServiceIntake) && e.What == event.Removed:
			err = s.finish(ctx, t)
		case e.Service == name.ServiceDatastore && e.What == event.Withdrawn && e.Err == nil:
			err = s.withdrawn(ctx, t, e)
		case e.Service == name.ServiceDatastore && e.What == event.Migrated && e.Err == nil:
			err = s.migrated(ctx, t, e)
		case e.Service == name.ServiceDatastore && slices.Contains([]string{event.Restoring, event.Restored, event.NotRestored}, e.What) && e.Err == nil:
			var news bool
			news, err = replaced(t, e, now)
			due = due || news
		case e.Service == name.ServiceWorkload && e.What == event.Called && e.Err == nil:
			var woken bool
			woken, err = s.called(ctx, t, e)
			due = due || woken
		case e.Service == name.ServiceAddons && e.What == event.Idle && e.Err == nil:
			var slept bool
			slept, err = s.idle(ctx, t, e)
			due = due || slept
		case e.Service == name.ServiceIntake && e.What == event.Due && e.Err == nil: // a pause ends, or sleep does, or begins
			// By the server's clock it is time; by this one it may not be yet.
			due = true
			if e.Time().After(now) {
				now = e.Time()
			}
		}
		if err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	if due && t.Tenant != nil && t.Tenant.Deleting {
		if err := s.finish(ctx, t); err != nil { // should it have failed before
			return err
		}
	}
	switch {
	case t.Woken(wakeDaily), asked(t):
		return s.dailyLook(ctx, t, now, s.sync)
	case t.Key == admissionKey:
		return s.syncAdmission(ctx)
	case t.Key.IsTenant() && (due || t.Unreadable() || hasNews(t, now)), t.Key.Kind == event.DataStores && (due || len(t.Wakes) > 0):
		return s.sync(ctx, t, now)
	}
	return nil
}

// sync brings what there is of a tenant's object, or of a DataStore's, in line with it.
func (s *intake) sync(ctx context.Context, t *loop.Turn, now time.Time) error {
	if t.Key.IsTenant() {
		return s.syncTenant(ctx, t, now)
	}
	return s.syncDataStore(ctx, t, now)
}
