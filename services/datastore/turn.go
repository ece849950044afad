package datastore

import (
	"context"
	"errors"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// handle is the one loop, for tenants and for DataStores.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
	switch {
	case t.Key == events.DataStore(t.Key.Name):
		return s.check(ctx, t)
	case t.Tenant == nil:
		return nil
	case t.Tenant.Deleting:
		return s.remove(ctx, t)
	case t.Tenant.Transfer != "":
		return s.keeper.PassOn(ctx, t)
	}
	err := s.provision(ctx, t)
	if taken := (*kube.TakenError)(nil); errors.As(err, &taken) {
		return t.Blocked(ctx, state.Failure{Reason: reason.NameTaken, Message: taken.Error()}, loop.Wake{Kind: wakeTaken})
	}
	return err
}
