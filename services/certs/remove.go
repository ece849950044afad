// Deletion: woken by datastore.removed of this tenant, it deletes the tenant's Secrets of keys and tells certs.removed with
// what all services before it and it removed.

package certs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// removedSecrets is the key under which this service counts.
const removedSecrets = name.ServiceCerts + "/Secret"

// remove takes down what was made, once it is this service's turn.
func (s *svc) remove(ctx context.Context, t *loop.Turn) error {
	if t.Own() != nil && t.Own().Step == event.Removed {
		return nil
	}
	before, err := turnToRemove(t.Events, t.UID)
	if err != nil {
		return err
	}
	if before == nil {
		return t.Wait(ctx, "datastore: removed")
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
	return t.Done(ctx, loop.Outcome{
		Step:  event.Removed,
		Facts: []loop.Tell{{What: event.Removed, Data: removals(t.About(), before, &own, ours)}},
	})
}

// turnToRemove returns what datastore says was removed so far, nil when it hasn't said so of this very tenant.
func turnToRemove(list []loop.Event, uid string) (*event.Removals, error) {
	for i := len(list) - 1; i >= 0; i-- {
		e := list[i]
		if e.Service != name.ServiceDatastore || e.What != event.Removed || e.Err != nil {
			continue
		}
		var r event.Removals
		if err := json.Unmarshal(e.Data(), &r); err != nil {
			return nil, &intent.Permanent{Reason: "InvalidFact", Message: "datastore.removed is not readable", Err: err}
		}
		if r.UID == uid {
			return &r, nil
		}
	}
	return nil, nil
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

// removals adds this service's count. A Secret that state knows counts too: a crash between the deletion and the fact
// must not make it forgotten.
func removals(about event.About, before *event.Removals, own *state.Certs, ours map[string]*corev1.Secret) event.Removals {
	r := event.Removals{About: about, Removed: maps.Clone(before.Removed), Left: before.Left}
	if r.Removed == nil {
		r.Removed = map[string]int{}
	}
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
	r.Removed[removedSecrets] = len(names)
	return r
}
