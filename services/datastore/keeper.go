package datastore

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
	// wakeJob: a job of the tenant has come further, or is to be tried again.
	wakeJob = "job"
)

// keeper moves the data of tenants, backs them up and restores them. It is safe for concurrent use, of which each tenant has one at a time.
type keeper struct {
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

// newKeeper returns one that has no mover and no job.
func newKeeper(k *kube.Client, bus *events.Bus, log *slog.Logger, stores *store.Registry, now func() time.Time, a *account.Provisioner) *keeper {
	wake := func(kind string) func(events.Key) {
		return func(key events.Key) { stores.WakeAll([]events.Key{key}, loop.Wake{Kind: kind}) }
	}
	return &keeper{
		kube: k, bus: bus, log: log, stores: stores, now: now, accounts: a, jobs: newJobs(wake(wakeJob)),
		movers: &movers{all: map[events.Key]*mover{}, waiting: map[events.Key]struct{}{}, wake: wake(wakeMove)},
	}
}

// stop ends all movers and jobs. A nil keeper has none.
func (s *keeper) stop() {
	if s != nil {
		s.jobs.stop()
		s.movers.stop()
	}
}

// end ends what goes on beside the turns of a tenant, and forgets the tenant.
func (s *keeper) end(key events.Key) {
	s.movers.end(key)
	s.jobs.end(key)
	s.failing.Forget(key)
}

// keep forgets the tenants in partitions that this replica doesn't hold.
func (s *keeper) keep(held []int) { s.failing.Keep(held) }

// register has backups counted at each scrape.
func (s *keeper) register(own prometheus.Registerer) { s.failing.register(own) }
