package loop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/natstest"
)

// A virtual machine that was paused goes on with a wall clock that is put right.
func TestAJumpOfTheWallClockEndsTheLeaseAndItsTerms(t *testing.T) {
	s := natstest.Start(t)
	l := newLease(s.Connect(t, "certs", "a"), "certs", prometheus.NewGauge(prometheus.GaugeOpts{}))
	var ahead atomic.Int64
	l.wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.run(ctx) }()
	defer func() { cancel(); <-done }()
	natstest.Eventually(t, "partition 3 is held", func() bool { return l.holds(3) })
	term := l.term(3)
	ahead.Store(int64(time.Hour))
	if l.holds(3) {
		t.Error("it is held after an hour")
	}
	natstest.Eventually(t, "partition 3 is held again", func() bool { return l.holds(3) })
	if l.term(3) == term {
		t.Error("what began before the pause may go on")
	}
}

func TestTwoThatClaimTheSamePartitionsAreOneAfterTheOther(t *testing.T) {
	s := natstest.Start(t)
	start := func(n string) *lease {
		return newLease(s.Connect(t, "certs", n), "certs", prometheus.NewGauge(prometheus.GaugeOpts{}))
	}
	// Neither knows of the other, as when each joins at the same moment.
	a, b := start("a"), start("b")
	var wg sync.WaitGroup
	for _, l := range []*lease{a, b} {
		wg.Go(func() {
			l.beat(t.Context())
			for range 20 {
				l.assign(t.Context())
			}
		})
	}
	wg.Wait()
	for p := range name.Partitions {
		if a.holds(p) && b.holds(p) {
			t.Errorf("both hold partition %d", p)
		}
	}
}

func TestDeadline(t *testing.T) {
	now := time.Now()
	d := deadline{now.Add(5 * time.Second), now.Round(0).Add(5 * time.Second)}
	for what, c := range map[string]struct {
		monotonic, wall time.Duration // since then, by each clock
		passed          bool
	}{
		"before it":                              {time.Second, time.Second, false},
		"after it":                               {6 * time.Second, 6 * time.Second, true},
		"a pause in which one clock stood still": {time.Second, time.Hour, true},
		"a wall clock that was set back":         {6 * time.Second, -time.Hour, true},
		"a wall clock that was set back before":  {time.Second, -time.Hour, false},
	} {
		if got := d.passed(now.Add(c.monotonic), now.Add(c.wall)); got != c.passed {
			t.Errorf("%s: passed is %v", what, got)
		}
	}
}

func TestALostBucketOfLeasesIsNoBucketWithoutClaims(t *testing.T) {
	s := natstest.Start(t)
	l := newLease(s.Connect(t, "certs", "a"), "certs", prometheus.NewGauge(prometheus.GaugeOpts{}))
	if _, revision, err := l.read(t.Context(), keyClaims); err != nil || revision != 0 {
		t.Errorf("before anybody claimed anything it reads revision %d, %v", revision, err)
	}
	if err := s.Connect(t, "intake", "").JetStream().DeleteStream(t.Context(), "KV_"+events.BucketLeases); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.read(t.Context(), keyClaims); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("of a bucket that is gone it reads %v", err)
	}
}
