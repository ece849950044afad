package addons

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// remove ends the care for a tenant that is being deleted. It removes nothing: what is inside the tenant goes with its data.
func (s *svc) remove(ctx context.Context, t *loop.Turn) error {
	s.drop(t.Key)
	before, _, err := t.BeginRemoval(ctx)
	if before == nil || err != nil {
		return err
	}
	return t.Removed(ctx, nil, before.With(name.ServiceAddons, nil))
}
