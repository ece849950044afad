package addons

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// remove ends the care for a tenant that is being deleted. It removes nothing: what is inside the tenant goes with its data.
func (s *addons) remove(ctx context.Context, t *loop.Turn) error {
	s.drop(t.Key)
	if own := t.Own(); own != nil && own.Step == event.Removed {
		return nil
	}
	before, _, err := t.RemovedBefore()
	if err != nil {
		return err
	}
	if before == nil {
		return t.WaitForRemoval(ctx)
	}
	return t.Removed(ctx, nil, before.With(name.ServiceAddons, nil))
}
