package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/service"
)

// debugFrom is the verbosity from which on programs of Kubernetes log what is for whoever looks for a fault.
const debugFrom = 4

// managerFlags are flags that the managers of Cluster API's providers have. cluster-api-operator sets them by what its objects say, each with
// a value.
type managerFlags struct {
	verbosity, health, diagnostics string
	withoutEffect                  string
}

func (m *managerFlags) declare(text service.Flag) {
	text(&m.verbosity, "v", "", "`number` for the verbosity of the log, as programs of Kubernetes have it: from 4 on it is --log-level=debug")
	text(&m.health, "health-addr", "", "another `address` that is served as that of --http")
	text(&m.diagnostics, "diagnostics-address", "", "another `address` that is served as that of --http; 0 for none")
	for name, why := range map[string]string{
		"leader-elect": "replicas share the work", "leader-elect-lease-duration": "replicas share the work",
		"leader-elect-renew-deadline": "replicas share the work", "leader-elect-retry-period": "replicas share the work",
		"max-concurrent-reconciles": "replicas share the work", "sync-period": "each control plane is looked at once a day",
		"webhook-port": "there is no webhook", "webhook-cert-dir": "there is no webhook",
	} {
		text(&m.withoutEffect, name, "", "without effect: "+why)
	}
}

// apply puts what the flags say into the configuration.
func (m *managerFlags) apply(cfg *service.Config) error {
	if m.verbosity != "" {
		n, err := strconv.ParseUint(m.verbosity, 10, 8)
		if err != nil {
			return fmt.Errorf("--v %q: must be a number from 0 to 255; or use --log-level", m.verbosity)
		}
		if n >= debugFrom {
			cfg.Log = service.NewLog(slog.LevelDebug)
		}
	}
	for _, address := range []string{m.health, m.diagnostics} {
		if address != "" && address != "0" && !slices.Contains(strings.Split(cfg.HTTP, ","), address) {
			cfg.HTTP = strings.TrimPrefix(cfg.HTTP+","+address, ",")
		}
	}
	return nil
}
