// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

// Command stoker-capi makes tenants of the control planes of Cluster API.
package main

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/capi"
)

func main() {
	var cfg capi.Config
	var flags managerFlags
	service.Main(name.ServiceCAPI, "Makes tenants of the control planes of Cluster API.",
		func(ctx context.Context, common service.Config) error {
			cfg.Config = common
			if err := flags.apply(&cfg.Config); err != nil {
				return err
			}
			return capi.Run(ctx, cfg)
		},
		func(flag service.Flag) {
			flag(&cfg.FeatureGates, "feature-gates", "", "`gates` to switch on or off, as <gate>=true,<gate>=false: ExternalClusterReference, "+
				"ExternalClusterReferenceCrossNamespace, SkipInfraClusterPatch")
			flag(&cfg.AbandonAfter, "abandon-after", "15m", "`duration` after which a control plane that is being deleted is let go though its tenant's cluster "+
				"can't be asked")
			flags.declare(flag)
		})
}
