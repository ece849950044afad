// Package tenantaddons keeps in tenants the software that TenantAddons say: it is installed in each tenant that a TenantAddon selects, wave by
// wave, as a Helm release, and put right where somebody changes it.
//
// It wakes on watches of the management cluster (TenantAddons, their AddonReleases, tenants, and what TenantAddons refer to) and inside tenants,
// and on facts about tenants. It makes so the AddonReleases and, in each tenant, the Helm release. It tells tenantaddons.installed, .notinstalled,
// .repaired, .uninstalled and .abandoned.
//
// There are two kinds of turns. That of a TenantAddon decides which tenants may have its latest revision (rollout.go, plan.go) and says so in an
// AddonRelease for each. That of a tenant makes so what its AddonReleases say (turn.go, install.go).
package tenantaddons

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/source"
)

// Config is the service's configuration.
type Config struct {
	service.Config
	// AbandonAfter is how long software that is to be removed waits for its tenant, when that can't be reached or refuses it, as a duration;
	// empty for 15 minutes. Then it is left there.
	AbandonAfter string
	// FleetNamespace is the namespace whose TenantAddons may be for tenants of other namespaces; empty for stoker-system.
	FleetNamespace string
}

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	after := defaultAbandonAfter
	if cfg.AbandonAfter != "" {
		var err error
		if after, err = time.ParseDuration(cfg.AbandonAfter); err != nil || after < 0 {
			return fmt.Errorf("--abandon-after %q: must be a duration, such as 15m", cfg.AbandonAfter)
		}
	}
	var s *svc
	err := service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		s = newService(c, cfg, after)
		s.register(c.Metrics)
		return &loop.Loop{
			// Nothing is watched during a pause. What drifts meanwhile is found when the watch starts again.
			Bus: c.Bus, Service: name.ServiceTenantAddons, Handle: s.handle, Watch: s.watch, Paused: func(t *loop.Turn) { s.drop(t.Key) },
		}, nil
	})
	if s != nil {
		s.keep(nil, nil)
	}
	return err
}

// svc is the service. Its methods are safe for concurrent use; turns of one TenantAddon or tenant don't overlap.
type svc struct {
	kube     *kube.Client
	log      *slog.Logger
	requests kube.RequestFunc

	abandonAfter              time.Duration
	fleetNamespace, namespace string

	fetcher  *source.Fetcher
	index    index
	referred referred
	// jobs has an element for each installation or removal that goes on, hooked for each with hooks; fetches for each source that a turn fetches.
	jobs, hooked, fetches chan struct{}
	metrics               *metrics

	mu   sync.Mutex
	wake loop.Waker
	// held are the partitions that this replica holds.
	held []int
	// known are the AddonReleases of a TenantAddon as they were read, planned is when it had a turn last, told its status as it was written last.
	known    map[types.NamespacedName]map[types.NamespacedName]*known
	planned  map[types.NamespacedName]time.Time
	told     map[types.NamespacedName]tenantaddon.TenantAddonStatus
	prepared map[types.NamespacedName]*prepared
	tenants  map[events.Key]*tenant
}

func newService(c *service.Clients, cfg Config, abandonAfter time.Duration) *svc {
	s := &svc{
		kube: c.Kube, log: c.Log, requests: c.TenantRequests, abandonAfter: abandonAfter, fleetNamespace: cfg.FleetNamespace, namespace: cfg.Namespace,
		fetcher: source.New(), jobs: make(chan struct{}, maxJobs), hooked: make(chan struct{}, maxHooked), fetches: make(chan struct{}, maxFetches),
		metrics: newMetrics(),
		known:   map[types.NamespacedName]map[types.NamespacedName]*known{}, planned: map[types.NamespacedName]time.Time{},
		told: map[types.NamespacedName]tenantaddon.TenantAddonStatus{}, prepared: map[types.NamespacedName]*prepared{}, tenants: map[events.Key]*tenant{},
	}
	if s.fleetNamespace == "" {
		s.fleetNamespace = name.Namespace
	}
	return s
}

// fleet reports whether TenantAddons may be for tenants of several namespaces.
func (s *svc) fleet() bool { return s.namespace == "" }

// begin notes how tenants and TenantAddons are woken.
func (s *svc) begin(wake loop.Waker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = wake
}

// note notes a status that was written.
func (s *svc) note(of types.NamespacedName, status tenantaddon.TenantAddonStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[of] = status
}
