// Package datastore gives each tenant its place in a DataStore: a user that reaches just the tenant's own data, and the
// two Secrets by which the tenant's API server connects.
//
// It wakes on intake.accepted, intake.deleting, workload.removed and its own timer; on changes of the Secrets it made,
// of DataStore objects and of the Secrets these refer to. It makes so: user, schema and grants, <tenant>-datastore-config,
// <tenant>-datastore-certificate. It publishes datastore.provisioned, datastore.removed and datastore.measured, and about
// DataStores datastore.checked and datastore.measured.
//
// Its rooms: registry.go, connection.go and breaker.go are the DataStores as this replica knows them, drivers.go the table of
// drivers; resolve.go and referenced.go read and watch what DataStores refer to; credentials.go keeps the tenants' Secrets;
// provision.go, plan.go, account.go and override.go provision a tenant, migrate.go and mover.go move its data, transfer.go has another
// management cluster take it over, remove.go removes it;
// backups.go, restore.go and inplace.go keep its data elsewhere and bring them back, parts.go has what is in several DataStores be one.
package datastore

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// Config is the service's configuration.
type Config struct {
	service.Config
	// SecretNamespaces are the namespaces whose Secrets DataStores may refer to, comma-separated; empty for the installation's own.
	SecretNamespaces string
	// RenewBefore is how long before its end a tenant's client certificate is renewed, as a duration ([service.ParseDeadline]); empty for when
	// a third of its life is left.
	RenewBefore string
}

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	before, err := service.ParseDeadline(cfg.RenewBefore)
	if err != nil {
		return err
	}
	m := &movers{all: map[events.Key]*mover{}, waiting: map[events.Key]struct{}{}}
	defer m.stop()
	js := newJobs(nil)
	defer js.stop()
	return service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		namespaces := strings.FieldsFunc(cmp.Or(cfg.SecretNamespaces, name.SystemNamespace), isSeparator)
		stores := store.New(c.Kube, namespaces, store.Drivers(), c.Log, time.Now)
		s := &svc{kube: c.Kube, bus: c.Bus, log: c.Log, stores: stores, now: time.Now, handlers: c.Handlers, renewBefore: before, movers: m, jobs: js}
		m.wake = func(key events.Key) { s.stores.WakeAll([]events.Key{key}, loop.Wake{Kind: wakeMove}) }
		js.wake = func(key events.Key) { s.stores.WakeAll([]events.Key{key}, loop.Wake{Kind: wakeJob}) }
		s.stores.Register(c.Metrics, c.Kamaji, cfg.TenantMetrics)
		s.failing.register(c.Metrics)
		s.usages.register(c.Metrics)
		if _, err := c.Bus.AnswerQuestions(ctx, s.questions()); err != nil {
			return nil, err
		}
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceDatastore, Handle: s.handle, Watch: s.watch}, nil
	})
}

// DescribeMetrics registers the metrics that datastore has beside those of every service, without a service.
func DescribeMetrics(own, kamaji prometheus.Registerer) {
	(*store.Registry)(nil).Register(own, kamaji, true)
	(*failing)(nil).register(own)
	(*usages)(nil).register(own)
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' }

// svc is the service.
type svc struct {
	kube   *kube.Client
	bus    *events.Bus
	log    *slog.Logger
	stores *store.Registry
	now    func() time.Time
	// handlers is told how long it took to make something so; nil for nobody.
	handlers *metric.HandlerTime
	// renewBefore is that of Config.
	renewBefore time.Duration

	// movers move tenants' data.
	movers *movers
	// jobs make backups and bring them back; failing are the tenants whose last one could not be made.
	jobs    *jobs
	failing failing
	// usages are the tenants with a quota.
	usages usages
	// written are the checksums of Secrets that this replica wrote over others, by types.NamespacedName, until a state has them.
	written sync.Map
}
