package status

// Which tenants are looked at although no fact is about them: those of a partition that this replica takes over.

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// Kinds of wakes.
const (
	// wakeLook is for a second look at a tenant that is on its way.
	wakeLook = "look"
	// wakeTakeover is for every tenant of a partition that this replica has taken over.
	wakeTakeover = "takeover"
)

// watch has every tenant of the partitions that are gained looked at once: what their last holder left undone is made good, and the
// tenants are counted; those of lost ones aren't any more. It watches no object.
func (s *svc) watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	for m := range held.Moves(ctx) {
		s.metrics.keep(m.Held)
		s.letters.keep(m.Held)
		// Those that intake has taken up: the others have no state yet.
		err := s.kube.TenantsIn(ctx, m.Gained, func(o *metav1.PartialObjectMetadata) {
			wake(events.Tenant(o.Namespace, o.Name), loop.Wake{Kind: wakeTakeover})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
