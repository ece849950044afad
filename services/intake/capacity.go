package intake

// How much room a DataStore has: what it holds beside what it may, by its annotations. Limits are for placement alone: a
// tenant that names a DataStore, or is there, has it.

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// store is what of a DataStore matters for giving it tenants.
type store struct {
	driver                  v1alpha1.Driver
	labels                  labels.Set
	ready, paused, deleting bool
	limits                  limits
	bytes                   int64 // that all tenants hold, as measured last
}

func storeOf(o *v1alpha1.DataStore, now time.Time) store {
	paused, _, _ := name.Paused(o.Annotations, now)
	s := store{
		driver: o.Spec.Driver, labels: labels.Merge(o.Labels, labels.Set{labelDriver: string(o.Spec.Driver)}),
		ready: o.Status.Ready, paused: paused, deleting: o.DeletionTimestamp != nil, limits: limitsOf(o.Annotations),
	}
	if o.Status.Usage != nil {
		s.bytes = o.Status.Usage.Bytes
	}
	return s
}

// takes reports whether a DataStore that is used by so many tenants is given new ones.
func (s store) takes(used int) bool {
	return s.closed(used) == ""
}

// limits are how much a DataStore takes, nil for no limit.
type limits struct {
	tenants, bytes *int64
	// bad says which limit can't be read. Whoever wrote it meant one, so the DataStore takes nobody.
	bad string
}

func limitsOf(annotations map[string]string) limits {
	tenants, bytes, err := name.Limits(annotations)
	l := limits{tenants: tenants, bytes: bytes}
	if err != nil {
		l.bad = err.Error()
	}
	return l
}

// fullness of a DataStore with so many tenants: 0 is empty, or without limits, and 1 is full.
func (s store) fullness(used int) float64 {
	return max(usedPart(int64(used), s.limits.tenants), usedPart(s.bytes, s.limits.bytes))
}

// usedPart is how much of a limit is used: 1 is all of it.
func usedPart(used int64, limit *int64) float64 {
	switch {
	case limit == nil:
		return 0
	case *limit <= 0:
		return 1
	}
	return float64(used) / float64(*limit)
}

// full says why a DataStore with so many tenants has no room for another, empty when it has.
func (s store) full(used int) string {
	l := s.limits
	switch {
	case l.bad != "":
		return l.bad
	case usedPart(int64(used), l.tenants) >= 1:
		return fmt.Sprintf("full (%d of %d tenants)", used, *l.tenants)
	case usedPart(s.bytes, l.bytes) >= 1:
		return fmt.Sprintf("full (%s of %s)", name.Bytes(s.bytes), name.Bytes(*l.bytes))
	}
	return ""
}

// closed says why a DataStore with so many tenants takes no more, empty when it does.
func (s store) closed(used int) string {
	switch {
	case s.deleting:
		return "being deleted"
	case s.paused:
		return "paused"
	case !s.ready:
		return "not ready"
	}
	return s.full(used)
}
