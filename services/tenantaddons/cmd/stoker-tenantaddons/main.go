// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

// Command stoker-tenantaddons installs in tenants the software that TenantAddons say.
package main

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/tenantaddons"
)

func main() {
	var cfg tenantaddons.Config
	service.Main(name.ServiceTenantAddons, "Installs in tenants the software that TenantAddons say.",
		func(ctx context.Context, common service.Config) error {
			cfg.Config = common
			return tenantaddons.Run(ctx, cfg)
		},
		func(flag service.Flag) {
			flag(&cfg.AbandonAfter, "abandon-after", "15m", "`duration` after which software that is to be removed from a tenant is left there, when the tenant "+
				"can't be reached or refuses it")
			flag(&cfg.FleetNamespace, "fleet-namespace", name.Namespace, "`namespace` whose TenantAddons may be for tenants of other namespaces")
		})
}
