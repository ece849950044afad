// Deletion: woken by datastore.removed of this tenant, it deletes the tenant's Secrets of keys and tells certs.removed with
// what all services before it and it removed.

package certs

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// remove takes down what was made, once it is this service's turn.
func (s *svc) remove(ctx context.Context, t *loop.Turn) error {
	if t.Own() != nil && t.Own().Step == event.Removed {
		return nil
	}
	before, _, err := t.RemovedBefore()
	if err != nil {
		return err
	}
	if before == nil {
		return t.WaitForRemoval(ctx)
	}
	var own state.Certs
	if err := t.OwnData(&own); err != nil {
		return fmt.Errorf("own state: %w", err)
	}
	have, err := s.list(ctx, t.Key.Namespace, t.Key.Name)
	if err != nil {
		return err
	}
	ours := removable(t.Key.Name, have)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(sideBySide)
	for _, o := range ours {
		g.Go(func() error { return s.delete(gctx, o) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := s.tellGenerated(ctx, t, own.Generated, nil); err != nil {
		return err
	}
	before.About = t.About()
	return t.Removed(ctx, nil, before.With(name.ServiceCerts, removed(&own, ours)))
}

// removable picks those Secrets that bear the names this service gives.
func removable(tenant string, have map[string]*corev1.Secret) map[string]*corev1.Secret {
	ours := map[string]*corev1.Secret{}
	for _, secret := range components(tenant) {
		if o := have[secret]; o != nil {
			ours[secret] = o
		}
	}
	for secret, o := range have {
		if generatorOf(tenant, o) != "" {
			ours[secret] = o
		}
	}
	return ours
}

// removed counts what this service has removed. A Secret that state knows counts too: a crash between the deletion and the fact
// must not make it forgotten.
func removed(own *state.Certs, ours map[string]*corev1.Secret) map[string]int {
	names := map[string]bool{}
	for secret := range ours {
		names[secret] = true
	}
	for _, secret := range own.Secrets {
		names[secret.Name] = true
	}
	for _, g := range own.Generated {
		if g.Name != "" {
			names[g.Name] = true
		}
	}
	return map[string]int{kube.Secrets.Kind: len(names)}
}
