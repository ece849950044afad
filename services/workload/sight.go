// What watches saw of the tenants' objects, against what the service has taken into account: the difference is drift, or
// news of a status. Kept in memory, and rebuilt by the watches' first lists.

package workload

import (
	"strconv"
	"sync"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// kind of an object of the tenant.
type kind int

const (
	service kind = iota
	deployment
	ingress
	route
	kinds
)

// sight is what is known of one object.
type sight struct {
	// seen is the resourceVersion last seen by the watch, empty for none; gone is true when the watch saw it go.
	seen string
	gone bool
	// known is the resourceVersion last taken into account.
	known string
	// generation of known, 0 when it isn't known.
	generation int64
}

// news reports whether the object is, or may be, other than known.
func (s sight) news() bool {
	switch {
	case s.gone, s.known == "":
		return true
	case s.seen == "":
		return false
	}
	return s.seen != s.known && !older(s.seen, s.known)
}

// older reports whether resource version a is before b: of one kind they can be compared (Kubernetes 1.35). What is no
// number is never older.
func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

// sights of all tenants of the replica. It is safe for concurrent use.
type sights struct {
	mu sync.Mutex
	m  map[events.Key]*[kinds]sight
}

func (s *sights) at(key events.Key) *[kinds]sight {
	if s.m == nil {
		s.m = map[events.Key]*[kinds]sight{}
	}
	if s.m[key] == nil {
		s.m[key] = &[kinds]sight{}
	}
	return s.m[key]
}

// see notes what a watch saw and reports whether it may be news.
func (s *sights) see(key events.Key, k kind, version string, gone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.at(key)[k]
	if gone {
		if older(version, o.known) {
			return false // the one before the one we made
		}
		o.seen, o.gone = version, true
		return true
	}
	if o.gone && older(version, o.seen) {
		return false
	}
	o.seen, o.gone = version, false
	return o.news()
}

// get returns what is known of an object. fallback is the version the own state has, for when nothing has been taken into
// account since the service was started; the object must then have been seen, else it counts as gone while nobody looked.
func (s *sights) get(key events.Key, k kind, fallback string) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.at(key)[k]
	if o.known == "" && o.seen != "" {
		o.known = fallback
	}
	return o
}

// any reports whether a watch sees the tenant's Service or Deployment.
func (s *sights) any(key events.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.m[key]
	return o != nil && (o[service].seen != "" || o[deployment].seen != "")
}

// know notes which version of an object was taken into account. An object that was written after it went is there again.
// An empty version is that of an object that isn't there and needn't be.
func (s *sights) know(key events.Key, k kind, version string, generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.at(key)[k]
	o.known, o.generation = version, generation
	switch {
	case o.gone && older(version, o.seen): // it went again before we knew that we had made it
	case o.gone, o.seen == "", older(o.seen, version):
		o.seen, o.gone = version, false
	}
}

// forget drops a tenant, clear all.
func (s *sights) forget(key events.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, key)
}

func (s *sights) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.m)
}
