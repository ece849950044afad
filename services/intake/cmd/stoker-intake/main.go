// Command stoker-intake runs the intake service.
package main

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/intake"
)

func main() {
	var cfg intake.Config
	service.Main("intake", "Turns commands into objects of the management cluster, and objects into desired state.",
		func(ctx context.Context, common service.Config) error {
			cfg.Config = common
			return intake.Run(ctx, cfg)
		},
		func(flag service.Flag) {
			flag(&cfg.DataStore, "datastore", "", "`name` of the DataStore for tenants that name none")
		})
}
