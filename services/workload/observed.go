// What watches have seen of the tenants' objects, beside what the service has taken into account: where they differ, somebody
// else changed the object or its status. Kept in memory, and rebuilt by the watches' first lists.

package workload

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// kind of an object of the tenant.
type kind int

const (
	kindService kind = iota
	kindDeployment
	kindIngress
	kindRoute
	kindEgress
	kindKubeadm
	kindKonnectivityRoute
	kindActivator
	kinds
)

// observation is what is known of one object.
type observation struct {
	// version is the resourceVersion that the watch saw last, empty for none; gone is true when that was its deletion.
	version string
	gone    bool
	// known is the resourceVersion that was taken into account last.
	known string
	// generation of known, 0 when it isn't known.
	generation int64
	// uid is that of the object as this replica applied it last, so that the next time it needn't be looked at whose it is. One that is
	// missing or outdated costs two requests.
	uid types.UID
}

// changed reports whether the object is, or may be, another than the one that is known.
func (o observation) changed() bool {
	switch {
	case o.gone, o.known == "":
		return true
	case o.version == "":
		return false
	}
	return o.version != o.known && !kube.Older(o.version, o.known)
}

// observations are those of all tenants of the replica. The zero value is ready to use; it is safe for concurrent use.
type observations struct {
	mu sync.Mutex
	m  map[events.Key]*[kinds]observation
}

// at returns the observations of a tenant. It is called with mu held.
func (s *observations) at(key events.Key) *[kinds]observation {
	if s.m == nil {
		s.m = map[events.Key]*[kinds]observation{}
	}
	if s.m[key] == nil {
		s.m[key] = &[kinds]observation{}
	}
	return s.m[key]
}

// see notes what a watch saw and reports whether the object may have changed.
func (s *observations) see(key events.Key, k kind, version string, gone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.at(key)[k]
	if gone {
		if kube.Older(version, o.known) {
			return false // that of an object before the one that this service made
		}
		o.version, o.gone = version, true
		return true
	}
	if o.gone && kube.Older(version, o.version) {
		return false
	}
	o.version, o.gone = version, false
	return o.changed()
}

// get returns what is known of an object. fallback is the version in the own state, which counts as known while nothing has
// been taken into account since the service was started. An object that no watch has seen either counts as changed then: it may
// have been deleted while no replica ran.
func (s *observations) get(key events.Key, k kind, fallback string) observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.at(key)[k]
	if o.known == "" && o.version != "" {
		o.known = fallback
	}
	return o
}

// sees reports whether an object is there, by what was seen of it.
func (s *observations) sees(key events.Key, k kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.m[key]
	return o != nil && o[k].version != "" && !o[k].gone
}

// setKnown notes which version of an object was taken into account, empty for an object that isn't there and needn't be. An
// object that was written after its deletion was seen is there again.
func (s *observations) setKnown(key events.Key, k kind, version string, generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.at(key)[k]
	o.known, o.generation = version, generation
	switch {
	case o.gone && kube.Older(version, o.version): // it was deleted again before its creation was answered
	case o.gone, o.version == "", kube.Older(o.version, version):
		o.version, o.gone = version, false
	}
}

// setUID notes the UID of an object that was applied.
func (s *observations) setUID(key events.Key, k kind, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at(key)[k].uid = uid
}

// doubt takes back what was taken into account of a tenant's objects, for a turn whose state could not be written: what the state says
// is what counts.
func (s *observations) doubt(key events.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.m[key]; o != nil {
		for k := range o {
			o[k].known = ""
		}
	}
}

// forget drops a tenant.
func (s *observations) forget(key events.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, key)
}

// keep drops what is known of objects of a kind, but for tenants in these partitions.
func (s *observations) keep(k kind, partitions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, of := range s.m {
		if slices.Contains(partitions, key.Partition()) {
			continue
		}
		if of[k] = (observation{}); *of == [kinds]observation{} {
			delete(s.m, key)
		}
	}
}

// clear drops all tenants.
func (s *observations) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.m)
}
