package loop

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/health"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

// A virtual machine that was paused goes on with a wall clock that is put right.
func TestAJumpOfTheWallClockEndsTheLeaseAndItsTerms(t *testing.T) {
	t.Parallel()
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
	if l.holds(3) && l.term(3) == term { // it may be held again by now
		t.Error("it is held after an hour")
	}
	natstest.Eventually(t, "partition 3 is held again", func() bool { return l.holds(3) })
	if l.term(3) == term {
		t.Error("what began before the pause may go on")
	}
}

func TestTwoThatClaimTheSamePartitionsAreOneAfterTheOther(t *testing.T) {
	t.Parallel()
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

func TestConfirmedClaimIsWrittenAgain(t *testing.T) {
	t.Parallel()
	l := newLease(natstest.Start(t).Connect(t, "certs", "a"), "certs", prometheus.NewGauge(prometheus.GaugeOpts{}))
	patient := func(what string, step func() bool) { t.Helper(); natstest.Eventually(t, what, step) } // a server that is busy may answer too late
	revision := func() (r uint64) {
		t.Helper()
		patient("the claims to be read", func() bool {
			var err error
			_, r, err = l.readClaims(t.Context())
			return err == nil && r > 0
		})
		return r
	}
	patient("a sign of life", func() bool { return l.beat(t.Context()) })
	patient("the first claim", func() bool { return l.claim(t.Context(), false) })
	first := revision()
	if !l.owned[0] {
		t.Errorf("after the first claim it knows of %+v", l.claims)
	}
	if patient("claims without a change", func() bool { return l.claim(t.Context(), false) }); revision() != first {
		t.Error("a claim that changes nothing is written")
	}
	if patient("a claim that is confirmed", func() bool { return l.claim(t.Context(), true) }); revision() == first {
		t.Error("a claim that is confirmed is not written")
	}
	read, at, err := l.readClaims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l.claims.Written["a"] != read.Written["a"] {
		t.Errorf("it wrote %+v, and knows of %+v", read, l.claims)
	}
	read.Holders[0], read.Written["b"] = "b", 1
	if err := l.writeClaims(t.Context(), read, at); err != nil {
		t.Fatal(err)
	}
	patient("the claims of another replica", func() bool { return l.claim(t.Context(), false) })
	if l.owned[0] || slices.Contains(l.told, 0) {
		t.Errorf("the loop works on partitions %v, 0 of which another replica holds", l.told)
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
	t.Parallel()
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

// gauge is the value of a lease's count of partitions.
func gauge(t *testing.T, l *lease) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(l.count)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

// away reports whether something is away by a health, and whether that knows of it at all.
func away(h *health.Health, dependency string) (away, known bool) {
	mux, page := http.NewServeMux(), httptest.NewRecorder()
	h.Handle(mux)
	mux.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	away = strings.Contains(page.Body.String(), "[-]"+dependency+" ")
	return away, away || strings.Contains(page.Body.String(), "[+]"+dependency+" ")
}

// working is a lease with an hour left, as after a sign of life; it asks no server anything unless its claims must be written.
func working(b *events.Bus) *lease {
	now := time.Now()
	l := &lease{
		bus: b, service: "certs", replica: "a", regained: func() {}, lost: func() {}, changed: make(chan []int, 1),
		nudge: make(chan struct{}, 1), clock: machineClock, wall: time.Now, count: prometheus.NewGauge(prometheus.GaugeOpts{Name: "held"}),
		members: map[string]time.Time{"a": now}, deadline: deadline{now.Add(time.Hour), now.Add(time.Hour)},
	}
	for p := range l.owned {
		l.owned[p], l.claims.Holders[p] = true, "a"
	}
	return l
}

func TestWhatAReplicaMayDoWithAPartition(t *testing.T) {
	for what, c := range map[string]struct {
		owned, leaving, over bool
		holds, keeps         bool
	}{
		"one that it works on":                           {owned: true, holds: true, keeps: true},
		"that, after its lease":                          {owned: true, over: true, keeps: true},
		"one that it hands over":                         {owned: true, leaving: true, holds: true},
		"one that another took, until it is handed over": {leaving: true},
		"another's": {},
	} {
		l := working(nil)
		if l.owned[3], l.leaving[3] = c.owned, c.leaving; c.over {
			l.deadline = deadline{}
		}
		if holds, keeps := l.holds(3), l.keeps(3); holds != c.holds || keeps != c.keeps {
			t.Errorf("%s: holds %v, keeps %v", what, holds, keeps)
		}
	}
	l := working(nil)
	l.leaving[3] = true
	l.release([]int{3})
	if l.owned[3] || l.leaving[3] || l.term(3) != 1 || !l.owned[4] || l.term(4) != 0 || len(l.nudge) != 1 {
		t.Errorf("after one was released: %+v", l)
	}
}

func TestWhatAReplicaHears(t *testing.T) {
	t.Parallel()
	bus := natstest.Start(t).Connect(t, "certs", "a")
	const claimed = "claims"
	for what, c := range map[string]struct {
		says                    string
		unknown, lives          bool // b is then known to live
		rewritten, rival, known bool
	}{
		"one that it doesn't know":                  {says: "b y", unknown: true, lives: true},
		"one that it knows":                         {says: "b y", known: true, lives: true},
		"one that says goodbye":                     {says: "b y bye", known: true},
		"somebody writes claims":                    {says: claimed, rewritten: true},
		"itself":                                    {says: "a m"},
		"another of its name, which it goes before": {says: "a l"},
		"another of its name, to which it yields":   {says: "a n", rival: true},
	} {
		t.Run(what, func(t *testing.T) {
			l := working(bus)
			l.life = "m"
			if c.known {
				l.members["b"] = time.Time{}
			}
			m := nats.NewMsg(l.subject(keyBeat))
			if m.Data = []byte(c.says); c.says == claimed {
				m.Subject = l.subject(keyClaims)
			}
			if unknown := l.hear(m); unknown != c.unknown {
				t.Errorf("unknown: %v", unknown)
			}
			if l.lives("b") != c.lives || c.lives && l.members["b"].IsZero() {
				t.Errorf("those who live: %v", l.members)
			}
			if l.rewritten != c.rewritten {
				t.Errorf("claims are to be read: %v", l.rewritten)
			}
			if yields := !l.rivalUntil.IsZero() && !l.holds(3) && l.leaving[3] && l.term(3) == 1; yields != c.rival {
				t.Errorf("yields: %v, %+v", yields, l)
			}
			if down, _ := away(bus.Config().Health, "replica name"); down != c.rival {
				t.Errorf("health says that its name is taken: %v", down)
			}
			bus.Config().Health.Up("replica name")
		})
	}
}

func TestWhenAReplicaHasSomethingToDo(t *testing.T) {
	now := time.Now()
	due := now.Add(heartbeat)
	for what, c := range map[string]struct {
		members map[string]time.Time
		over    bool
		want    time.Time
	}{
		"alone":                          {want: due},
		"another was heard a moment ago": {members: map[string]time.Time{"b": now}, want: due},
		"another will have been silent for too long":    {members: map[string]time.Time{"b": now.Add(-heartbeat - time.Second)}, want: now.Add(memberTTL - heartbeat - time.Second + time.Millisecond)},
		"it was itself not heard for longer":            {members: map[string]time.Time{"a": now.Add(-heartbeat - time.Second)}, want: due},
		"its lease is over, and nothing is to be taken": {members: map[string]time.Time{"b": now.Add(-heartbeat - time.Second)}, over: true, want: due},
	} {
		l := working(nil)
		if c.over {
			l.deadline = deadline{}
		}
		if c.members != nil {
			l.members = c.members
		}
		if next := l.next(due); !next.Equal(c.want) {
			t.Errorf("%s: in %s", what, next.Sub(now))
		}
	}
}

func TestWhatAReplicaMakesOfWhatItKnows(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	bus := s.Connect(t, "certs", "a")
	first := working(bus)
	first.deadline = deadline{} // as at its start
	natstest.Eventually(t, "it holds a partition", func() bool { return first.beat(t.Context()) && first.holds(3) })
	l := func() *lease { // another that knows the same
		l := working(bus)
		l.claims = first.claims
		return l
	}
	long := time.Now().Add(-time.Hour)
	t.Run("at rest it asks nobody anything and tells the loop nothing twice", func(t *testing.T) {
		l := l()
		l.assign(t.Context())
		if told := <-l.changed; len(told) != name.Partitions || gauge(t, l) != name.Partitions {
			t.Errorf("it works on %v and counts %v", told, gauge(t, l))
		}
		sent := bus.Conn().Stats().OutMsgs
		l.assign(t.Context())
		if n := bus.Conn().Stats().OutMsgs - sent; n > 0 || len(l.changed) > 0 {
			t.Errorf("%d messages, told %d", n, len(l.changed))
		}
		if _, known := away(bus.Config().Health, "replica name"); known {
			t.Error("health speaks of its name")
		}
	})
	t.Run("only those that it didn't hear for long are dead", func(t *testing.T) {
		l := l()
		l.stopping = true // and takes nothing
		l.members = map[string]time.Time{"a": long, "b": time.Now(), "dead": long}
		l.assign(t.Context())
		if !l.lives("a") || !l.lives("b") || l.lives("dead") {
			t.Errorf("alive are %v", l.members)
		}
	})
	t.Run("what is not of its share is handed over, and nothing else", func(t *testing.T) {
		l := l()
		l.members["b"] = time.Now()
		for _, p := range share([]string{"a", "b"}, "b")[1:] {
			l.owned[p], l.claims.Holders[p] = false, "b"
		}
		theirs := share([]string{"a", "b"}, "b")[0]
		l.assign(t.Context())
		for p, leaves := range l.leaving {
			if leaves != (p == theirs) {
				t.Errorf("partition %d is handed over: %v", p, leaves)
			}
		}
		if told := <-l.changed; len(told) != name.Partitions/2 {
			t.Errorf("it works on %v", told)
		}
	})
	t.Run("when its lease is over it does nothing, and counts no partition", func(t *testing.T) {
		l := l()
		l.assign(t.Context())
		<-l.changed
		l.deadline, l.stopping = deadline{}, true
		l.assign(t.Context())
		if len(l.changed) > 0 || l.leaving[3] || gauge(t, l) != 0 {
			t.Errorf("%+v, counts %v", l, gauge(t, l))
		}
	})
	t.Run("another of its name is waited for until it is silent", func(t *testing.T) {
		l := l()
		bus.Config().Health.Down("replica name", errors.New("a test"))
		l.rivalUntil = time.Now().Add(time.Hour)
		l.assign(t.Context())
		if down, _ := away(bus.Config().Health, "replica name"); !down || l.rivalUntil.IsZero() || !l.leaving[3] {
			t.Errorf("%+v", l)
		}
		l.rivalUntil = long
		l.assign(t.Context())
		if down, _ := away(bus.Config().Health, "replica name"); down || !l.rivalUntil.IsZero() {
			t.Errorf("%+v", l)
		}
	})
	t.Run("a partition that it gave back and that is still in its name is claimed again", func(t *testing.T) {
		l := l()
		l.owned[3] = false
		natstest.Eventually(t, "it is", func() bool { l.assign(t.Context()); return l.holds(3) })
	})
	t.Run("claims that somebody wrote are read", func(t *testing.T) {
		l := l()
		l.rewritten = true
		theirs, revision, err := l.readClaims(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		theirs.Holders[3] = "b"
		theirs.Written["b"]++
		if err := l.writeClaims(t.Context(), theirs, revision); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "they are", func() bool { l.assign(t.Context()); return !l.rewritten })
		if l.holds(3) || !l.holds(4) || !l.lives("b") {
			t.Errorf("%+v", l)
		}
	})
}

func TestASignOfLife(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	bus := s.Connect(t, "certs", "a")
	own, theirs := share([]string{"a", "b"}, "a")[0], share([]string{"a", "b"}, "b")[0]
	regained, lost := 0, 0
	l := newLease(bus, "certs", prometheus.NewGauge(prometheus.GaugeOpts{Name: "held"}))
	l.regained, l.lost = func() { regained++ }, func() { lost++ }
	beat := func(what string, times, term int) {
		t.Helper()
		beats := l.beats
		natstest.Eventually(t, what, func() bool { // a server that is busy may answer too late
			return l.beat(t.Context()) || l.beats > beats
		})
		if !l.holds(own) || l.term(own) != term || regained != times {
			t.Errorf("%s: regained %d times, term %d, %+v", what, regained, l.term(own), l)
		}
	}
	revision := func() uint64 {
		t.Helper()
		_, revision, err := l.readClaims(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	// Who claimed before it lives, as far as it can know.
	before := claims{Written: map[string]int{"b": 1}}
	before.Holders[theirs] = "b"
	if err := l.writeClaims(t.Context(), before, 0); err != nil {
		t.Fatal(err)
	}
	l.claims = before
	beat("the first begins the lease", 1, 1)
	if l.holds(theirs) || gauge(t, l) == 0 {
		t.Errorf("it takes what another holds that it hasn't listened to: %+v", l)
	}
	claimed := revision()
	for i := 2; i <= beatsPerLook; i++ {
		l.stale = false
		if beat("the next renew it", 1, 1); l.rewritten != (i == beatsPerLook) || !l.stale {
			t.Errorf("after sign of life %d the claims are to be read: %v; stale: %v", i, l.rewritten, l.stale)
		}
	}
	if beat("claims that are to be read are still", 1, 1); !l.rewritten || revision() != claimed {
		t.Errorf("%+v", l)
	}
	l.sequence++
	beat("one that is no later than the last is in another bucket", 2, 2)
	l.deadline = deadline{}
	l.count.Set(0)
	if beat("one after the lease was over begins it anew", 3, 3); gauge(t, l) == 0 {
		t.Error("no partition is counted")
	}
	ended, cancel := context.WithCancel(t.Context())
	if cancel(); l.beat(ended) || lost > 0 {
		t.Errorf("one that isn't sent renews the lease; lost %d times", lost)
	}
	l.findCause(t.Context())
	if lost > 0 {
		t.Error("a bucket that is there is lost")
	}
	if err := s.Connect(t, "intake", "").JetStream().DeleteStream(t.Context(), "KV_"+events.BucketLeases); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "a bucket that is gone is lost", func() bool { // a server that is busy may answer too late
		if l.beat(t.Context()) {
			t.Error("a sign of life was sent to a bucket that is gone")
		}
		return lost > 0
	})
	if lost != 1 {
		t.Errorf("it was lost %d times", lost)
	}
}

func TestAReplicaThatStopsGivesBackWhatItHoldsAndSaysGoodbye(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	bus, other := s.Connect(t, "certs", "a"), s.Connect(t, "certs", "b")
	l := newLease(bus, "certs", prometheus.NewGauge(prometheus.GaugeOpts{Name: "held"}))
	heard, err := other.Conn().SubscribeSync(l.subject(keyBeat))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.readClaims(t.Context()); err != nil { // so that the connection has the inbox of its requests
		t.Fatal(err)
	}
	before := bus.Conn().NumSubscriptions()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.run(ctx) }()
	natstest.Eventually(t, "partition 3 is held", func() bool { return l.holds(3) })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c, _, err := l.readClaims(t.Context()); err != nil || c.Holders != [name.Partitions]string{} || l.holds(3) {
		t.Errorf("it holds %v, %v", c.Holders, err)
	}
	last := "a " + l.life
	for last != "a "+l.life+" "+goodbye {
		m := natstest.Next(t, "the goodbye after "+last, heard)
		if last != "a "+l.life {
			t.Fatalf("after the last sign of life %q is heard", last)
		}
		last = string(m.Data)
	}
	if n := bus.Conn().NumSubscriptions(); n != before {
		t.Errorf("it still listens: %d subscriptions, %d before", n, before)
	}
	bus.Close()
	if err := l.run(t.Context()); err == nil {
		t.Error("without a connection it runs")
	}
}

// What can't be given back keeps nobody from ending: others take over after a time-out.
func TestAReplicaThatCanNotGiveBackWhatItHoldsEndsAllTheSame(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	bus := s.Connect(t, "certs", "a")
	l := newLease(bus, "certs", prometheus.NewGauge(prometheus.GaugeOpts{}))
	if err := s.Connect(t, "intake", "").JetStream().DeleteStream(t.Context(), "KV_"+events.BucketLeases); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	l.leave(soon) // without the bucket
	bus.Close()
	l.leave(t.Context()) // without a connection
	if l.claim(t.Context(), false) {
		t.Error("it could have")
	}
}

func TestOfThoseThatItHearsAReplicaAnswersNewcomersAlone(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	other := s.Connect(t, "certs", "b")
	l := newLease(s.Connect(t, "certs", "a"), "certs", prometheus.NewGauge(prometheus.GaugeOpts{}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.run(ctx) }()
	defer func() { cancel(); <-done }()
	natstest.Eventually(t, "partition 3 is held", func() bool { return l.holds(3) })
	known := func() (beats int, heard time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.beats, l.members["b"]
	}
	const signs = 40
	before, _ := known()
	for range signs {
		_, at := known()
		if _, err := other.JetStream().Publish(t.Context(), l.subject(keyBeat), []byte("b y")); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "it is heard", func() bool { _, heard := known(); return heard.After(at) })
	}
	// One for the newcomer, and some by the clock.
	if beats, _ := known(); beats-before > signs/2 {
		t.Errorf("%d signs of life while it hears %d", beats-before, signs)
	}
}
