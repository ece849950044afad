// Package account provisions the account of a tenant in its DataStores: schema, user and grants, the two Secrets by which the tenant's API
// server connects, and its quota. It removes accounts that are no longer needed.
//
// Files: plan.go compares what must be with the state, provision.go and override.go provision accounts in the tenant's own DataStore and in
// those of dataStoreOverrides, credentials.go writes the Secrets, reach.go reads them; layout.go says which resources are in which DataStore;
// kept.go removes what moves left, drop.go all that a tenant has; quota.go reads what a tenant keeps.
package account

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
	// WakeSecret: a Secret made for a tenant changed; Object is its component.
	WakeSecret = "secret"
	// wakeUsage: it is time to read what a tenant with a quota keeps.
	wakeUsage = "usage"
)

// Provisioner provisions and removes the accounts of tenants. It is safe for concurrent use, with one turn of each tenant at a time.
type Provisioner struct {
	kube   *kube.Client
	log    *slog.Logger
	stores *store.Registry
	now    func() time.Time
	// handlers gets the time that each object took; may be nil.
	handlers *metric.HandlerTime
	// renewBefore is how long before its end a tenant's client certificate is renewed, 0 for when a third of its life is left.
	renewBefore time.Duration

	usages usages
	// written are the checksums of Secrets that this replica wrote over others, by types.NamespacedName, until a state has them.
	written sync.Map
}

// New returns a Provisioner for the DataStores of a registry.
func New(
	k *kube.Client, log *slog.Logger, stores *store.Registry, now func() time.Time, handlers *metric.HandlerTime, renewBefore time.Duration,
) *Provisioner {
	return &Provisioner{kube: k, log: log, stores: stores, now: now, handlers: handlers, renewBefore: renewBefore}
}

// Forget forgets a tenant that is being removed.
func (p *Provisioner) Forget(key events.Key) { p.usages.Forget(key) }

// Keep forgets the tenants in partitions that this replica doesn't hold.
func (p *Provisioner) Keep(held []int) { p.usages.Keep(held) }

// Register has the tenants with a quota counted at each scrape.
func (p *Provisioner) Register(own prometheus.Registerer) { p.usages.register(own) }
