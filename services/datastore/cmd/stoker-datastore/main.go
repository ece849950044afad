// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

// Command stoker-datastore gives each tenant its user, schema and credentials in a DataStore.
package main

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/datastore"
)

func main() {
	var cfg datastore.Config
	service.Main(name.ServiceDatastore, "Gives each tenant its user, schema and credentials in a DataStore, and takes them back.",
		func(ctx context.Context, common service.Config) error {
			cfg.Config = common
			return datastore.Run(ctx, cfg)
		},
		func(flag service.Flag) {
			flag(&cfg.SecretNamespaces, "secret-namespaces", name.SystemNamespace,
				"`namespaces` whose Secrets DataStores may refer to, comma-separated; what they hold is sent to where a DataStore says")
			flag(&cfg.RenewBefore, service.FlagDeadline, "", service.UsageDeadline)
		})
}
