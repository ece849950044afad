// Package capi is the control plane provider for Cluster API: it makes a tenant of each KamajiControlPlane, and tells Cluster API where that
// stands.
//
// It wakes on watches of the management cluster: control planes, their tenants, their Clusters, and the Secrets that it made for these. It
// makes so the TenantControlPlane, the endpoint in the control plane and in the infrastructure cluster, the Secrets that Cluster API reads,
// and the control plane's status. It tells capi.initialized.
//
// A control plane and its tenant have one name and one namespace, so that a turn is about both.
//
// Read turn.go (the steps of a turn), tenant.go (which tenant is asked for), endpoint.go, infrastructure.go, secrets.go and status.go (what
// follows from the tenant), remove.go (the end), cluster.go, watch.go and index.go.
package capi

import (
	"context"
	"log/slog"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	return service.Run(ctx, cfg, func(c *service.Clients) (*loop.Loop, error) {
		s := &svc{kube: c.Kube, log: c.Log}
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceCAPI, Handle: s.handle, Watch: s.watch}, nil
	})
}

// svc is the service. Its methods are safe for concurrent use; turns of one control plane don't overlap.
type svc struct {
	kube  *kube.Client
	log   *slog.Logger
	index index
}
