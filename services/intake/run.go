// Package intake is the way in. It turns commands into objects of the management cluster by server-side apply, so that every rule
// sits in the API server once, and objects, whoever wrote them, into the spec that the other services work from.
//
// run.go decides what an event or a wake leads to. Commands: command.go (what is checked, and their end), verbs.go, apply.go, change.go,
// delete.go, object.go (their data), refusal.go (their errors), http.go and access.go (the way in by HTTP). Tenants: spec.go, schedule.go
// (sleep), inplace.go (set back to a backup), place.go (which DataStore), remove.go. DataStores: datastore.go, capacity.go, admission.go. What a
// replica knows by its watches: watch.go, index.go. What it answers the operator: questions.go, dead.go, replicas.go, resync.go; and whoever may
// command a tenant: plan.go, verdict.go. What Kamaji made is left alone until it is adopted: held.go. Objects of a remote API: remote.go.
package intake

import (
	"context"
	"log/slog"
	"sync"

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
		s := &svc{
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
type svc struct {
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
