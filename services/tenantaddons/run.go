// Package tenantaddons keeps in tenants the software that TenantAddons say: it is installed in each tenant that a TenantAddon selects, wave by
// wave, as a Helm release, and put right where somebody changes it.
//
// It wakes on watches of the management cluster (TenantAddons, their AddonReleases, tenants, and what TenantAddons refer to) and inside tenants,
// and on facts about tenants. It makes so the AddonReleases and, in each tenant, the Helm release. It tells tenantaddons.installed, .notinstalled,
// .repaired, .uninstalled and .abandoned.
//
// There are two kinds of turns. That of a TenantAddon decides which tenants may have its latest revision (rollout.go, plan.go) and says so in an
// AddonRelease for each. That of a tenant makes so what its AddonReleases say (turn.go).
package tenantaddons

import (
	"context"
	"fmt"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
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

// defaultAbandonAfter is Config.AbandonAfter where none is said.
const defaultAbandonAfter = 15 * time.Minute

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	after := defaultAbandonAfter
	if cfg.AbandonAfter != "" {
		var err error
		if after, err = time.ParseDuration(cfg.AbandonAfter); err != nil || after < 0 {
			return fmt.Errorf("--abandon-after %q: must be a duration, such as 15m", cfg.AbandonAfter)
		}
	}
	return service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		s := &svc{abandonAfter: after}
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceTenantAddons, Handle: s.handle}, nil
	})
}

// svc is the service.
type svc struct {
	abandonAfter time.Duration
}

func (s *svc) handle(context.Context, *loop.Turn) error { return nil }
