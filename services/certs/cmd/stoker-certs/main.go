// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

// Stoker-certs makes the keys, certificates and kubeconfigs of tenants.
package main

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/certs"
)

func main() {
	var cfg certs.Config
	service.Main(name.ServiceCerts, "Makes the keys, certificates and kubeconfigs of tenants and rotates them.",
		func(ctx context.Context, common service.Config) error {
			cfg.Config = common
			return certs.Run(ctx, cfg)
		},
		func(flag service.Flag) {
			flag(&cfg.RenewBefore, service.FlagDeadline, "", service.UsageDeadline)
			flag(&cfg.ArgoCDNamespace, "argocd-namespace", "",
				"`namespace` of Argo CD, where tenants that ask for it become clusters; empty for none")
			flag(&cfg.ArgoCDProject, "argocd-project", "", "`name` of the AppProject that these clusters belong to; empty for none")
			flag(&cfg.ArgoCDLabels, "argocd-labels", "", "`keys` of tenants' labels that these clusters have, comma-separated")
		})
}
