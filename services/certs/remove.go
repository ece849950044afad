// Deletion: woken by datastore.removed of this tenant, it deletes the tenant's Secrets of keys and tells certs.removed with
// what all services before it and it removed, once the Secrets are gone.

package certs

import (
	"context"
	"errors"
	"fmt"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// remove takes down what was made, once it is this service's turn.
func (s *svc) remove(ctx context.Context, t *loop.Turn) error {
	before, _, err := t.BeginRemoval(ctx)
	if before == nil || err != nil {
		return err
	}
	var own state.Certs
	if err := t.OwnData(&own); err != nil {
		return fmt.Errorf("own state: %w", err)
	}
	ours, held, err := s.secrets.RemoveAll(ctx, kube.Owner{Name: t.Key.Name, UID: t.UID}, t.Key.Namespace, &own)
	if err != nil {
		return err
	}
	cluster, left, err := s.endCluster(ctx, t, &own)
	if kept := (*kube.HeldError)(nil); errors.As(err, &kept) {
		held, err = append(held, kept), nil
	}
	if err != nil {
		return err
	}
	if len(held) > 0 {
		return awaitSecrets(ctx, t, held)
	}
	if err := s.generators.Tell(ctx, t, own.Generated, nil); err != nil {
		return err
	}
	before.About = t.About()
	if err := t.Removed(ctx, nil, before.With(name.ServiceCerts, removed(&own, append(ours, cluster...)), left...)); err != nil {
		return err
	}
	s.expiries.forget(t.Key)
	return nil
}

// awaitSecrets notes that Secrets are kept, and by what. Their watch says when they are gone.
func awaitSecrets(ctx context.Context, t *loop.Turn, held []*kube.HeldError) error {
	kind, text, since := kube.Held(held)
	o := loop.Outcome{Wait: state.Wait{On: kind, Reason: reason.ObjectHeld, Text: text}}
	if own := t.Own(); own != nil {
		o.Step, o.Inputs, o.Data = own.Step, own.Inputs, own.Data
	}
	return t.Held(ctx, o, since, loop.Wake{Kind: wakeHeld})
}

// removed counts what this service has removed. A Secret that state knows counts too: a crash between the deletion and the fact
// must not make it forgotten.
func removed(own *state.Certs, ours []string) map[string]int {
	names := map[string]bool{}
	for _, secret := range ours {
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
	if own.ArgoCD != nil && own.ArgoCD.Name != "" {
		names[own.ArgoCD.Name] = true
	}
	return map[string]int{kube.Secrets.Kind: len(names)}
}
