package workload

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestSlots(t *testing.T) {
	a, b, c, d := events.Tenant("x", "a"), events.Tenant("x", "b"), events.Tenant("x", "c"), events.Tenant("x", "d")
	setup := func(n int) (*slots, *[]events.Key) {
		offered := &[]events.Key{}
		var mu sync.Mutex // offers come from timers, too
		return newSlots(n, func(k events.Key) { mu.Lock(); defer mu.Unlock(); *offered = append(*offered, k) }), offered
	}
	expect := func(t *testing.T, s *slots, held, waiting int) {
		t.Helper()
		if h, w := s.count(); h != held || w != waiting {
			t.Errorf("%d hold a slot and %d wait, want %d and %d", h, w, held, waiting)
		}
	}
	in := func(sentence string, f func(t *testing.T)) {
		t.Run(sentence, func(t *testing.T) { synctest.Test(t, f) })
	}

	in("no more than there are get one, and asking twice takes one", func(t *testing.T) {
		s, _ := setup(2)
		got := []bool{s.take(a), s.take(a), s.take(b), s.take(c), s.take(c)}
		if !slices.Equal(got, []bool{true, true, true, false, false}) {
			t.Errorf("slots were handed out wrongly: %t", got)
		}
		expect(t, s, 2, 1)
		s.keepIn(nil)
	})
	in("a freed one is offered to who waits longest, and nobody takes it before", func(t *testing.T) {
		s, offered := setup(1)
		s.take(a)
		s.take(b)
		s.take(c)
		s.free(a)
		if !slices.Equal(*offered, []events.Key{b}) {
			t.Errorf("offered to %v", *offered)
		}
		if s.take(d) || s.take(c) || !s.take(b) {
			t.Error("it went to another")
		}
		s.keepIn(nil)
	})
	in("an offer that nobody takes goes to the next", func(t *testing.T) {
		s, offered := setup(1)
		s.take(a)
		s.take(b) // paused meanwhile
		s.take(c)
		s.free(a)
		time.Sleep(offerTime + time.Second) //nolint:forbidigo // the bubble's clock
		synctest.Wait()
		if !slices.Equal(*offered, []events.Key{b, c}) || !s.take(c) {
			t.Errorf("offered to %v", *offered)
		}
		s.keepIn(nil)
	})
	in("a rollout that doesn't end loses its slot after its time", func(t *testing.T) {
		s, offered := setup(1)
		s.take(a)
		s.take(b)
		time.Sleep(slotTime + time.Second) //nolint:forbidigo // the bubble's clock
		synctest.Wait()
		if !slices.Equal(*offered, []events.Key{b}) || !s.take(b) {
			t.Errorf("offered to %v", *offered)
		}
		s.keepIn(nil)
	})
	in("rollouts found after a restart count, even if they are too many", func(t *testing.T) {
		s, offered := setup(1)
		s.keep(a, time.Minute)
		s.keep(b, time.Minute)
		expect(t, s, 2, 0)
		if s.take(c) {
			t.Error("a third got one")
		}
		s.free(a)
		if len(*offered) != 0 {
			t.Errorf("offered to %v while another holds it", *offered)
		}
		s.free(b)
		if !slices.Equal(*offered, []events.Key{c}) {
			t.Errorf("offered to %v", *offered)
		}
		s.keepIn(nil)
	})
	in("keeping a slot doesn't prolong it", func(t *testing.T) {
		s, _ := setup(1)
		s.take(a)
		time.Sleep(slotTime - time.Second) //nolint:forbidigo // the bubble's clock
		s.keep(a, slotTime)
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's clock
		synctest.Wait()
		expect(t, s, 0, 0)
	})
	in("a tenant that goes gives up its place", func(t *testing.T) {
		s, offered := setup(1)
		s.take(a)
		s.take(b)
		s.take(c)
		s.free(b)
		s.free(a)
		if !slices.Equal(*offered, []events.Key{c}) {
			t.Errorf("offered to %v", *offered)
		}
		s.keepIn(nil)
	})
}
