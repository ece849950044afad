package status

// Which tenants are looked at although no fact is about them: those of a partition that this replica takes over.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// Kinds of wakes.
const (
	// wakeLook is for a second look at a tenant that is on its way.
	wakeLook = "look"
	// wakeTakeover is for every tenant of a partition that this replica has taken over.
	wakeTakeover = "takeover"
)

// watch has every tenant of the partitions that are new here looked at once: what their last holder left undone is made good,
// and the tenants are counted. It watches no object.
func (s *svc) watch(ctx context.Context, partitions []int, wake loop.Waker) error {
	if gained := s.metrics.setPartitions(partitions); len(gained) > 0 {
		// Those that intake has taken up: the others have no state yet.
		tenants, err := s.kube.Metadata(ctx, kube.TenantControlPlanes, kube.InPartitions(slices.Sorted(maps.Keys(gained))))
		if err != nil {
			return fmt.Errorf("tenants of the partitions taken over: %w", err)
		}
		for _, o := range tenants {
			wake(events.Tenant(o.Namespace, o.Name), loop.Wake{Kind: wakeTakeover})
		}
		s.metrics.noteListed(gained)
	}
	<-ctx.Done()
	return nil
}
