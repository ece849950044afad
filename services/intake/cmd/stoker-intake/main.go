// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

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
			flag(&cfg.ForbiddenNamespaces, "forbidden-namespaces", "",
				"`names` of namespaces, separated by commas, in which nothing is commanded, or beginnings of names with *; kube-* and stoker-system always are")
			flag(&cfg.Events.Address, "events-http", "", "`address` on which CloudEvents are taken by HTTP (POST /events); empty for none")
			flag(&cfg.Events.Certificate, "events-cert", "", "`file` with the TLS certificate of --events-http; only a loopback address needs none")
			flag(&cfg.Events.Key, "events-key", "", "`file` with the key of --events-cert")
			flag(&cfg.Events.Tokens, "events-token", "", "`file` of the bearer tokens that clients of --events-http must send, as `stoker token add` writes it")
			flag(&cfg.Events.ClientCA, "events-client-ca", "", "`file` with the authorities of certificates that clients must show, too")
		})
}
