package intake

// Tenants that Kamaji made, and that nobody has said are to be adopted. Nothing is done for them: no finalizer, no label, no bucket, no
// status; commands for them are refused. The annotation name.AnnotationAdopt ends that, and the watch shows it.

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// heldTenants are those of the replica's partitions. The zero value is ready to use; it is safe for concurrent use.
type heldTenants struct {
	mu  sync.Mutex
	all map[events.Key]struct{}
}

// note notes whether a tenant is held, and reports whether that is news.
func (h *heldTenants) note(key events.Key, is bool) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, was := h.all[key]; was == is {
		return false
	}
	if !is {
		delete(h.all, key)
		return true
	}
	if h.all == nil {
		h.all = map[events.Key]struct{}{}
	}
	h.all[key] = struct{}{}
	return true
}

// keep forgets tenants of other partitions than these.
func (h *heldTenants) keep(partitions []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.all {
		if !slices.Contains(partitions, key.Partition()) {
			delete(h.all, key)
		}
	}
}

// metric is how many there are.
func (h *heldTenants) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stoker_intake_held_tenants", Help: "Tenants that Kamaji made and that are not adopted, of the partitions this replica holds.",
	}, func() float64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		return float64(len(h.all))
	})
}

// holds reports whether a tenant is left alone because Kamaji made it, nil for no object.
func (s *svc) holds(key events.Key, o *v1alpha1.TenantControlPlane) bool {
	held := o != nil && v1alpha1.MadeByKamaji(o)
	if s.held.note(key, held) && held {
		s.log.Info("tenant left alone: it was made by Kamaji; `stoker adopt` has it worked on", "tenant", key.String(), "generation", o.Generation,
			"deleting", o.DeletionTimestamp != nil)
	}
	return held
}

// notAdopted is the refusal of a command for a tenant that is left alone.
func notAdopted(key events.Key) refusal {
	return refuse("metadata.annotations["+name.AnnotationAdopt+"]", event.RuleRequired, "",
		key.String()+" was made by Kamaji and isn't adopted: run `stoker adopt "+key.Name+" -n "+key.Namespace+"`")
}
