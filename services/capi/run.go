// Package capi is the control plane provider for Cluster API: it makes a tenant of each KamajiControlPlane, and tells Cluster API where that
// stands.
//
// It wakes on watches of the management cluster: control planes, their tenants, their Clusters, and the Secrets that it made for these. It
// makes so the TenantControlPlane, the endpoint in the control plane and in the infrastructure cluster, the Secrets that Cluster API reads,
// and the control plane's status. It tells capi.initialized.
//
// A control plane and its tenant have one name and one namespace, so that a turn is about both.
//
// Read turn.go (the steps of a turn), place.go and external.go (the cluster where the tenant is), tenant.go (which tenant is asked for),
// endpoint.go, infrastructure.go, secrets.go and status.go (what follows from the tenant), remove.go (the end), cluster.go, watch.go and
// index.go.
package capi

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Config is the service's configuration.
type Config struct {
	service.Config
	// FeatureGates are switched on or off, as <gate>=true,<gate>=false; the gates are those of Kamaji's provider.
	FeatureGates string
	// AbandonAfter is how long a control plane that is being deleted waits for its tenant's cluster, when that is another than the management
	// cluster and can't be asked, as a duration; empty for 15 minutes. Then it is let go, and the tenant left there.
	AbandonAfter string
}

// Feature gates, all off unless they are switched on.
const (
	// gateExternal allows control planes to have their tenants in other clusters; gateCrossNamespace, with it, by Secrets of other namespaces.
	gateExternal       = "ExternalClusterReference"
	gateCrossNamespace = "ExternalClusterReferenceCrossNamespace"
	// gateSkipInfrastructure leaves the endpoint of infrastructure clusters alone.
	gateSkipInfrastructure = "SkipInfraClusterPatch"
	// gateDynamicInfrastructure has had Kamaji's provider take any kind of infrastructure, which capi does without.
	gateDynamicInfrastructure = "DynamicInfrastructureClusterPatch"
)

// gatesOf are the feature gates that are on.
func gatesOf(text string) (map[string]bool, error) {
	known := []string{gateExternal, gateCrossNamespace, gateSkipInfrastructure, gateDynamicInfrastructure}
	on := map[string]bool{}
	for one := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		gate, value, _ := strings.Cut(one, "=")
		is, err := strconv.ParseBool(value)
		if err != nil || !slices.Contains(known, gate) {
			return nil, fmt.Errorf("--feature-gates %q: must be <gate>=true or <gate>=false, with a gate of %s", one, strings.Join(known, ", "))
		}
		on[gate] = is
	}
	if on[gateCrossNamespace] && !on[gateExternal] {
		return nil, fmt.Errorf("--feature-gates: %s needs %s=true, too", gateCrossNamespace, gateExternal)
	}
	return on, nil
}

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	gates, err := gatesOf(cfg.FeatureGates)
	if err != nil {
		return err
	}
	after := defaultAbandonAfter
	if cfg.AbandonAfter != "" {
		if after, err = time.ParseDuration(cfg.AbandonAfter); err != nil || after < 0 {
			return fmt.Errorf("--abandon-after %q: must be a duration, such as 15m", cfg.AbandonAfter)
		}
	}
	return service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		s := &svc{kube: c.Kube, bus: c.Bus, log: c.Log, gates: gates, abandonAfter: after}
		s.externals = &externals{kube: c.Kube, log: c.Log, requests: c.ExternalRequests}
		s.externals.register(c.Metrics)
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceCAPI, Handle: s.handle, Watch: s.watch}, nil
	})
}

// svc is the service. Its methods are safe for concurrent use; turns of one control plane don't overlap.
type svc struct {
	kube         *kube.Client
	bus          *events.Bus
	log          *slog.Logger
	gates        map[string]bool
	abandonAfter time.Duration
	index        index
	externals    *externals
}
