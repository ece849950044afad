// Package status is the way out: it makes the tenants' API status, what portals subscribe to and the metrics from what the
// other services keep.
//
// It wakes on every fact of another service and, while a tenant is on its way, for second looks. It makes so the status of
// TenantControlPlane and DataStore and the last message on stoker.status.<namespace>.<name>. It tells status.changed and
// status.deleted.
//
// Read run.go (what runs), turn.go (one look at a tenant), compute.go, standing.go and conditions.go (what its status is), look.go
// (when to write it), publish.go (how), remove.go and pause.go (a tenant's end, and its pauses).
package status

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	return service.Run(ctx, cfg, func(c *service.Clients) (*loop.Loop, error) {
		s := &svc{bus: c.Bus, kube: c.Kube, metrics: newMetrics(c.Metrics, c.Kamaji, cfg.TenantMetrics)}
		s.letters = newLetters(c.Bus, c.Metrics) //nolint:contextcheck // a scrape has no context
		if _, err := c.Bus.AnswerQuestions(ctx, s.questions()); err != nil {
			return nil, err
		}
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceStatus, Handle: s.handle, Watch: s.watch}, nil
	})
}

type svc struct {
	bus     *events.Bus
	kube    *kube.Client
	metrics *metrics
	letters *letters
}
