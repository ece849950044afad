package datastore

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// Kinds of wakes that accounts cause.
const (
	// wakeSecret: a Secret made for a tenant changed; Object is its component.
	wakeSecret = "secret"
	// wakeUsage: it is time to read what a tenant with a quota keeps.
	wakeUsage = "usage"
)

// accounts provisions and removes the accounts of tenants. It is safe for concurrent use, of which each tenant has one at a time.
type accounts struct {
	kube   *kube.Client
	log    *slog.Logger
	stores *store.Registry
	now    func() time.Time
	// handlers is told how long each object took; nil for nobody.
	handlers *metric.HandlerTime
	// renewBefore is how long before its end a tenant's client certificate is renewed, 0 for when a third of its life is left.
	renewBefore time.Duration

	usages usages
	// written are the checksums of Secrets that this replica wrote over others, by types.NamespacedName, until a state has them.
	written sync.Map
}

// newAccounts returns one that provisions accounts in the DataStores of a registry.
func newAccounts(
	k *kube.Client, log *slog.Logger, stores *store.Registry, now func() time.Time, handlers *metric.HandlerTime, renewBefore time.Duration,
) *accounts {
	return &accounts{kube: k, log: log, stores: stores, now: now, handlers: handlers, renewBefore: renewBefore}
}

// forget forgets a tenant that is being removed.
func (s *accounts) forget(key events.Key) { s.usages.Forget(key) }

// keep forgets the tenants in partitions that this replica doesn't hold.
func (s *accounts) keep(held []int) { s.usages.Keep(held) }

// register has the tenants with a quota counted at each scrape.
func (s *accounts) register(own prometheus.Registerer) { s.usages.register(own) }
