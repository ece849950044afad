package loop

import (
	"sync"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// alarms wake a loop about objects after a while. They live in memory and as long as their partitions are held: whoever
// takes a partition over looks at its objects anyway. It is safe for concurrent use.
type alarms struct {
	wake Waker

	mu sync.Mutex
	m  map[alarmOf]*alarm
}

// alarmOf tells an object's alarm that its service has set from that of the loop, for what was given up.
type alarmOf struct {
	key     events.Key
	givenUp bool
}

type alarm struct {
	at    time.Time
	timer *time.Timer
}

// set arms the object's one alarm, or the one for what was given up. One that is due earlier stays.
func (s *alarms) set(key events.Key, after time.Duration, w Wake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, of := time.Now().Add(after), alarmOf{key, w.Kind == wakeAgain}
	if a := s.m[of]; a != nil {
		if !a.at.After(at) {
			return
		}
		a.timer.Stop()
	}
	if s.m == nil {
		s.m = map[alarmOf]*alarm{}
	}
	a := &alarm{at: at}
	a.timer = time.AfterFunc(after, func() {
		s.mu.Lock()
		current := s.m[of] == a
		if current {
			delete(s.m, of)
		}
		s.mu.Unlock()
		if current {
			s.wake(key, w)
		}
	})
	s.m[of] = a
}

// stop takes the alarms away whose objects are meant.
func (s *alarms) stop(meant func(events.Key) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, a := range s.m {
		if meant(of.key) {
			a.timer.Stop()
			delete(s.m, of)
		}
	}
}

// off takes an object's alarm away.
func (s *alarms) off(of alarmOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.m[of]; a != nil {
		a.timer.Stop()
		delete(s.m, of)
	}
}

// Alarm wakes the service about this object after a while, once. An object has one alarm
// per service; one that is due earlier stays. It is for second looks at what no fact tells, and goes with the partition
// and the process; what must not be missed is for [Turn.At].
func (t *Turn) Alarm(after time.Duration, w Wake) { t.loop.alarms.set(t.Key, after, w) }

// NoAlarm takes the alarm away.
func (t *Turn) NoAlarm() { t.loop.alarms.off(alarmOf{key: t.Key}) }
