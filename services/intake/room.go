package intake

// How much room a DataStore has: what it holds beside what it may, by its annotations. Limits are for placement alone: a
// tenant that names a DataStore, or is there, has it.

import (
	"fmt"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

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
	return max(share(int64(used), s.limits.tenants), share(s.bytes, s.limits.bytes))
}

// share of a limit that is used.
func share(used int64, limit *int64) float64 {
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
	case share(int64(used), l.tenants) >= 1:
		return fmt.Sprintf("full (%d of %d tenants)", used, *l.tenants)
	case share(s.bytes, l.bytes) >= 1:
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
