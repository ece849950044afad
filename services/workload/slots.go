// Paced rollouts: a bounded number of tenants start pods at a time, for API servers that start together starve each other
// until their probes fail. Slots live in memory; after a restart they are taken again by the rollouts that are found.

package workload

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// defaultRollouts is how many tenants may roll out at once: three on two cores, which keeps both busy and lets each API
// server come up within a few seconds.
func defaultRollouts() int { return max(2, runtime.GOMAXPROCS(0)*3/2) }

// slots hands out the right to roll out, first come, first served. It is safe for concurrent use.
type slots struct {
	max int
	// offer tells a waiting tenant that a slot is free.
	offer func(events.Key)

	mu    sync.Mutex
	held  map[events.Key]*time.Timer
	queue []waiter
}

type waiter struct {
	key events.Key
	// lapse removes an offer that nobody took; nil while none was made.
	lapse *time.Timer
}

func newSlots(n int, offer func(events.Key)) *slots {
	return &slots{max: n, offer: offer, held: map[events.Key]*time.Timer{}}
}

// take gets the tenant a slot, or a place in the queue.
func (s *slots) take(key events.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[key] != nil {
		return true
	}
	at := s.waiting(key)
	if at < 0 {
		at = len(s.queue)
		s.queue = append(s.queue, waiter{key: key})
	}
	if len(s.held)+at >= s.max {
		return false
	}
	s.unqueue(key)
	s.hold(key, slotTime)
	return true
}

// keep holds a slot for a rollout that goes on already, whether one is free or not, for what is left of its time.
func (s *slots) keep(key events.Key, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left > 0 && s.held[key] == nil {
		s.unqueue(key)
		s.hold(key, left)
	}
}

// free gives the tenant's slot or place in the queue to the next.
func (s *slots) free(key events.Key) {
	s.mu.Lock()
	if timer := s.held[key]; timer != nil {
		timer.Stop()
		delete(s.held, key)
	}
	s.unqueue(key)
	offers := s.offers()
	s.mu.Unlock()
	for _, key := range offers {
		s.offer(key)
	}
}

// keepIn frees the slots and places of tenants in partitions other than these: another replica goes on with their rollouts.
func (s *slots) keepIn(partitions []int) {
	s.mu.Lock()
	var lost []events.Key
	add := func(key events.Key) {
		if !slices.Contains(partitions, key.Partition()) {
			lost = append(lost, key)
		}
	}
	for key := range s.held {
		add(key)
	}
	for _, w := range s.queue {
		add(w.key)
	}
	s.mu.Unlock()
	for _, key := range lost {
		s.free(key)
	}
}

// count returns how many roll out and how many wait.
func (s *slots) count() (held, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held), len(s.queue)
}

// The rest is called with mu held.

func (s *slots) hold(key events.Key, d time.Duration) {
	s.held[key] = time.AfterFunc(d, func() { s.free(key) })
}

func (s *slots) waiting(key events.Key) int {
	return slices.IndexFunc(s.queue, func(w waiter) bool { return w.key == key })
}

func (s *slots) unqueue(key events.Key) {
	at := s.waiting(key)
	if at < 0 {
		return
	}
	if s.queue[at].lapse != nil {
		s.queue[at].lapse.Stop()
	}
	s.queue = slices.Delete(s.queue, at, at+1)
}

// offers returns those in the queue for whom there is a slot now, and starts the time within which they have to take it: a
// tenant may have been paused or have gone meanwhile.
func (s *slots) offers() []events.Key {
	var keys []events.Key
	for i := range s.queue {
		if len(s.held)+i >= s.max {
			break
		}
		if key := s.queue[i].key; s.queue[i].lapse == nil {
			s.queue[i].lapse = time.AfterFunc(offerTime, func() { s.free(key) })
			keys = append(keys, key)
		}
	}
	return keys
}
