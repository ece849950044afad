// Package data moves, backs up and restores the data of tenants. Movers and jobs do what takes longer than a turn.
//
// Files: migrate.go runs the turns of a move, mover.go and pace.go copy data, change.go finds the next move and what prevents it; prospect.go and
// findings.go foretell a move; backups.go makes backups, restore.go and inplace.go bring data back, jobs.go runs both, failing.go counts failures;
// parts.go reads and writes the data of several DataStores as one; transfer.go hands a tenant over to another management cluster; asked.go
// answers questions.
package data

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// Kinds of wakes that movers and jobs cause.
const (
	// wakeMove: the mover of the tenant's data has come further, or there is room for one.
	wakeMove = "move"
	// WakeJob: a job of the tenant has come further, or is to be tried again.
	WakeJob = "job"
)

// Keeper moves the data of tenants, backs them up and restores them. It is safe for concurrent use, with one turn of each tenant at a time.
type Keeper struct {
	kube     *kube.Client
	bus      *events.Bus
	log      *slog.Logger
	stores   *store.Registry
	now      func() time.Time
	accounts *account.Provisioner

	movers *movers
	jobs   *jobs
	// failing are the tenants whose last backup could not be made.
	failing failing
}

// New returns a Keeper without movers and jobs.
func New(k *kube.Client, bus *events.Bus, log *slog.Logger, stores *store.Registry, now func() time.Time, a *account.Provisioner) *Keeper {
	wake := func(kind string) func(events.Key) {
		return func(key events.Key) { stores.WakeAll([]events.Key{key}, loop.Wake{Kind: kind}) }
	}
	return &Keeper{
		kube: k, bus: bus, log: log, stores: stores, now: now, accounts: a, jobs: newJobs(wake(WakeJob)),
		movers: &movers{all: map[events.Key]*mover{}, waiting: map[events.Key]struct{}{}, wake: wake(wakeMove)},
	}
}

// Stop ends all movers and jobs. A nil keeper has none.
func (k *Keeper) Stop() {
	if k != nil {
		k.jobs.stop()
		k.movers.stop()
	}
}

// End stops the tenant's mover and job, and forgets the tenant.
func (k *Keeper) End(key events.Key) {
	k.movers.end(key)
	k.jobs.end(key)
	k.failing.Forget(key)
}

// Keep forgets the tenants in partitions that this replica doesn't hold.
func (k *Keeper) Keep(held []int) { k.failing.Keep(held) }

// Register has backups counted at each scrape.
func (k *Keeper) Register(own prometheus.Registerer) { k.failing.register(own) }
