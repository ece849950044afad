package event

import (
	"maps"
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// RemovalOrder is the order of a deletion. Each service removes its part of the tenant when the one before it has told that its own
// is gone (fact removed), and then tells the same; the first begins with intake.deleting. What uses something goes before it:
// pods write to the DataStore and mount keys, and the object's finalizer, intake's part, holds until nothing is left.
func RemovalOrder() []string {
	return []string{name.ServiceAddons, name.ServiceWorkload, name.ServiceDatastore, name.ServiceCerts, name.ServiceIntake}
}

// RemovedBefore returns the service whose part must be gone before this one's, empty when there is none.
func RemovedBefore(service string) string {
	order := RemovalOrder()
	if i := slices.Index(order, service); i > 0 {
		return order[i-1]
	}
	return ""
}

// With returns what was removed when a service has removed its part, counted by kind of object, and what it had to leave.
func (r Removals) With(service string, removed map[string]int, left ...string) Removals {
	sum := Removals{About: r.About, Removed: maps.Clone(r.Removed), Left: slices.Concat(r.Left, left)}
	if sum.Removed == nil {
		sum.Removed = map[string]int{}
	}
	for kind, count := range removed {
		sum.Removed[service+"/"+kind] += count
	}
	return sum
}
