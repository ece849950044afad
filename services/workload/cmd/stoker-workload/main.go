// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

// Command stoker-workload runs the workload service.
package main

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/workload"
)

func main() {
	var cfg workload.Config
	service.Main("workload", "Exposes control planes and rolls out their pods.",
		func(ctx context.Context, common service.Config) error {
			cfg.Config = common
			return workload.Run(ctx, cfg)
		},
		func(flag service.Flag) {
			flag(&cfg.MaxRollouts, "max-rollouts", "", "`number` of tenants whose pods roll out at once per replica; default 1.5 per core, at least 2")
			flag(&cfg.ActivatorAddress, "activator-address", "", "IP `address` of this replica, at which connections to tenants that sleep come in to wake them; empty: none do")
			flag(&cfg.GateImage, "gate-image", "", "`image` of the gate, which pods have while their data move to another DataStore; default stoker-gate of this version")
			flag(&cfg.KineImage, "kine-image", workload.DefaultKineImage, "`image` of kine, which runs beside the API server on databases other than etcd; another one rolls out")
		})
}
