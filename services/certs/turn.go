package certs

import (
	"context"
	"errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// handle is a turn, of a tenant or of a KubeconfigGenerator.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
	switch {
	case t.Key.Kind == event.KubeconfigGenerators:
		return s.generators.Status(ctx, t)
	case t.Tenant == nil:
		s.expiries.forget(t.Key)
		return s.orphanedCluster(ctx, t)
	case t.Tenant.Deleting:
		return s.remove(ctx, t)
	}
	err := s.issue(ctx, t)
	if taken := (*kube.TakenError)(nil); errors.As(err, &taken) {
		return t.Blocked(ctx, state.Failure{Reason: reason.NameTaken, Message: taken.Error()}, loop.Wake{Kind: wakeTaken})
	}
	return err
}
