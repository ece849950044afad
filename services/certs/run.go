// Package certs makes every Secret of keys, certificates and kubeconfigs of a tenant, keeps them valid and puts back what
// somebody deletes or edits.
//
// It wakes on intake.accepted (what needs no endpoint is issued at once), workload.exposed (the API server's certificate and the administrators'
// kubeconfigs follow), workload.available (what no pod has any more can go), certs.due (renewal, and a check of everything once a week), changes
// of its Secrets and of KubeconfigGenerators, intake.deleting and datastore.removed. It tells certs.issued once everything exists for a
// generation, certs.rotated when something of that generation was replaced later, certs.removed; certs.generated about each kubeconfig of a
// KubeconfigGenerator, which wakes it to write that one's status.
//
// Files: issue.go is a tenant's turn, watch.go what wakes it besides facts, remove.go its deletion, argocd.go the tenant as a cluster of
// Argo CD. Package pki knows what must
// exist and how it is made (the names of the API server's certificate are in its san.go, whether a Secret may stay in its
// policy.go), package generator the kubeconfigs that KubeconfigGenerators ask for.
package certs

import (
	"context"
	"log/slog"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/certs/internal/argocd"
	"github.com/stoker-k8s/stoker/services/certs/internal/generator"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

type svc struct {
	kube       *kube.Client
	secrets    *pki.Secrets
	generators *generator.Generators
	log        *slog.Logger
	now        func() time.Time
	expiries   *expiries
	argocd     argocd.Config
}

func newService(bus *events.Bus, k *kube.Client, log *slog.Logger) *svc {
	secrets := &pki.Secrets{Kube: k}
	return &svc{
		kube: k, secrets: secrets, generators: generator.New(bus, secrets, log, time.Now), log: log, now: time.Now,
		expiries: newExpiries(time.Now, false),
	}
}

// Config of the service.
type Config struct {
	service.Config
	// RenewBefore is how long before its end a certificate is renewed that isn't a CA's, as a duration ([service.ParseDeadline]); empty for
	// when a third of its life is left.
	RenewBefore string
	// ArgoCDNamespace is where Argo CD is, whose clusters tenants become that ask for it; empty for nowhere. ArgoCDProject is the AppProject
	// that these clusters belong to, empty for none, and ArgoCDLabels the keys of the tenants' labels that they have, comma-separated.
	ArgoCDNamespace, ArgoCDProject, ArgoCDLabels string
}

// Run works until ctx ends. It returns early only with an error that no waiting helps. Safe to run several times in a
// process.
func Run(ctx context.Context, cfg Config) error {
	before, err := service.ParseDeadline(cfg.RenewBefore)
	if err != nil {
		return err
	}
	clusters, err := argocd.ParseConfig(cfg.ArgoCDNamespace, cfg.ArgoCDProject, cfg.ArgoCDLabels)
	if err != nil {
		return err
	}
	return service.Run(ctx, cfg.Config, func(c *service.Clients) (*loop.Loop, error) {
		s := newService(c.Bus, c.Kube, c.Log)
		s.argocd = clusters
		s.secrets.RenewBefore, s.expiries.within = before, max(before, expiringWithin)
		s.secrets.Handlers, s.expiries.perTenant = c.Handlers, cfg.TenantMetrics
		s.expiries.register(c.Metrics, c.Kamaji)
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceCerts, Handle: s.handle, Paused: s.paused, Watch: s.watch}, nil
	})
}

// paused takes down the certificates of a tenant that is paused: nobody renews them.
func (s *svc) paused(t *loop.Turn) {
	var own state.Certs
	if t.OwnData(&own) == nil {
		s.expiries.note(t.Key, &own)
	}
}
