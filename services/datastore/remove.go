package datastore

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
)

// remove wakes on workload.removed, when no pod of the tenant is left that could write. It removes data, user and role
// that are the tenant's, and both Secrets, and publishes datastore.removed with what it removed and what it had to leave, once the
// Secrets are gone.
func (s *svc) remove(ctx context.Context, t *loop.Turn) error {
	before, since, err := t.BeginRemoval(ctx)
	if before == nil || err != nil {
		return err
	}
	own := state.Datastore{}
	if err := t.OwnData(&own); err != nil {
		return err
	}
	s.keeper.End(t.Key)
	s.accounts.Forget(t.Key)
	left := own.Left
	if was := t.Own(); was == nil || was.Wait.Reason != reason.ObjectHeld { // else all that is left to do is to wait for the Secrets
		if left, err = s.accounts.DropAll(ctx, t, &own, since); err != nil {
			return err
		}
	}
	if own.Removed == nil {
		own.Removed = map[string]int{}
	}
	held, err := s.accounts.RemoveSecrets(ctx, t, own.Removed)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		own.Left = left
		return awaitSecrets(ctx, t, own, held)
	}
	removed := own.Removed
	for _, dataStore := range account.DataStoresOf(t.Tenant, own) {
		s.stores.Get(dataStore).RemoveTenant(t.Key)
	}
	own.Removed, own.Left = nil, left
	return t.Removed(ctx, own, before.With(name.ServiceDatastore, removed, left...))
}

// awaitSecrets notes what was removed by now, that Secrets are kept, and by what. Their watch says when they are gone.
func awaitSecrets(ctx context.Context, t *loop.Turn, own state.Datastore, held []*kube.HeldError) error {
	kind, text, since := kube.Held(held)
	o := loop.Outcome{Wait: state.Wait{On: kind, Reason: reason.ObjectHeld, Text: text}, Data: own}
	if was := t.Own(); was != nil {
		o.Step, o.Inputs = was.Step, was.Inputs
	}
	return t.Held(ctx, o, since, loop.Wake{Kind: wakeHeld})
}
