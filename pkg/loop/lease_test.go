package loop_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// tenantIn returns a tenant of a partition.
func tenantIn(partition int) events.Key {
	for i := 0; ; i++ {
		if key := events.Tenant("default", fmt.Sprintf("t%d", i)); key.Partition() == partition {
			return key
		}
	}
}

// held is the gauge of partitions that a replica works on.
func held(t *testing.T, r *prometheus.Registry) float64 {
	t.Helper()
	return gauge(t, r, "stoker_partitions_held")
}

// gauge is the value of a metric without labels, -1 when there is none.
func gauge(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// replica is a replica of certs whose turns and watches a test sees.
type replica struct {
	name     string
	loop     *loop.Loop
	bus      *events.Bus
	registry *prometheus.Registry
	stop     func()
	wake     atomic.Pointer[loop.Waker]
	lists    chan []int // partitions that a watch gained: all, when it begins
	watches  atomic.Int32
}

func certs(t *testing.T, s *natstest.Server, n string, handle loop.Handler, with ...func(*loop.Loop)) *replica {
	t.Helper()
	return certsOn(t, s.Config("certs", n), handle, with...)
}

// realTime is for a replica that must notice by itself that a sign of life isn't answered.
func realTime(l *loop.Loop) { l.SetMachineClock() }

// setClock has a replica's lease last by a clock that the test moves.
func setClock(c *loop.Clock) func(*loop.Loop) { return func(l *loop.Loop) { l.SetClock(c) } }

func certsOn(t *testing.T, cfg events.Config, handle loop.Handler, with ...func(*loop.Loop)) *replica {
	t.Helper()
	bus, err := events.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{name: cfg.Replica, bus: bus, registry: prometheus.NewRegistry(), lists: make(chan []int, 100)}
	l := &loop.Loop{Bus: bus, Service: "certs", Metrics: r.registry, Handle: handle,
		Watch: func(ctx context.Context, held *partition.Held, wake loop.Waker) error {
			r.watches.Add(1)
			r.wake.Store(&wake)
			for m := range held.Moves(ctx) {
				if len(m.Gained) > 0 {
					r.lists <- m.Gained
				}
			}
			return nil
		}}
	stop := run(t, l, with...)
	r.loop = l
	r.stop = func() { stop(); bus.Close() }
	t.Cleanup(r.stop)
	return r
}

func TestAnOutageOfNATSKeepsWatchesAlarmsAndWakes(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	turns := make(chan string, 100)
	key, clock := tenantIn(3), loop.NewClock()
	r := certs(t, s, "a", func(_ context.Context, turn *loop.Turn) error {
		if turn.Woken("set") {
			turn.Alarm(2*time.Second, loop.Wake{Kind: "alarm"}) // so that the lease is over when it goes off
		}
		for _, w := range turn.Wakes {
			turns <- w.Kind
		}
		return nil
	}, setClock(clock))
	if got := <-r.lists; len(got) != name.Partitions {
		t.Fatalf("alone it watches %v", got)
	}
	(*r.wake.Load())(key, loop.Wake{Kind: "set"})
	<-turns
	s.Stop()
	clock.Step(loop.LeaseTTL)
	natstest.Eventually(t, "the lease is over", func() bool { return held(t, r.registry) == 0 })
	natstest.Eventually(t, "the replica shows no lease", func() bool { return gauge(t, r.registry, "stoker_lease_held") == 0 })
	away := func() bool { return slices.Contains(r.bus.Config().Health.Away(), "nats lease") }
	natstest.Eventually(t, "the replica isn't ready", away)
	(*r.wake.Load())(key, loop.Wake{Kind: "seen"})
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the replica shows its lease", func() bool { return gauge(t, r.registry, "stoker_lease_held") == 1 })
	natstest.Eventually(t, "a turn for what was seen, and one for the alarm", func() bool { return len(turns) == 2 })
	got := []string{<-turns, <-turns}
	slices.Sort(got)
	if !slices.Equal(got, []string{"alarm", "seen"}) {
		t.Errorf("turns after the outage: %v", got)
	}
	natstest.Eventually(t, "the replica is ready", func() bool { return !away() })
	if len(r.lists) > 0 {
		t.Errorf("everything was listed anew: %v", <-r.lists)
	}
}

func TestANewcomerWaitsForWhoHoldsAPartition(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	var working [name.Partitions]atomic.Bool
	started := make(chan struct{}, name.Partitions)
	a := certs(t, s, "a", func(ctx context.Context, turn *loop.Turn) error {
		p := turn.Key.Partition()
		working[p].Store(true)
		started <- struct{}{}
		<-ctx.Done() // for as long as turns may take
		working[p].Store(false)
		return ctx.Err()
	})
	<-a.lists
	for p := range name.Partitions {
		(*a.wake.Load())(tenantIn(p), loop.Wake{Kind: "seen"})
	}
	for range name.Partitions {
		<-started
	}
	b := certs(t, s, "b", func(context.Context, *loop.Turn) error { return nil })
	got := <-b.lists
	for _, p := range got {
		if working[p].Load() {
			t.Errorf("b begins on partition %d while a works on it", p)
		}
	}
	if len(got) != name.Partitions/2 {
		t.Errorf("b begins on %v", got)
	}
}

func TestAWatchGoesOnForThePartitionsThatStayWhenMembersComeAndGo(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	nothing := func(context.Context, *loop.Turn) error { return nil }
	a := certs(t, s, "a", nothing)
	if got := <-a.lists; len(got) != name.Partitions {
		t.Fatalf("alone it watches %v", got)
	}
	b := certs(t, s, "b", nothing)
	theirs := <-b.lists
	b.stop()
	if got := <-a.lists; !slices.Equal(got, theirs) {
		t.Errorf("of %v, which the other gave back, it gained %v", theirs, got)
	}
	if n := a.watches.Load(); n != 1 {
		t.Errorf("its watches were started %d times", n)
	}
}

// thirdMember returns a name with whose end partitions move between a and b, too.
func thirdMember() string {
	for i := 0; ; i++ {
		n := fmt.Sprintf("c%d", i)
		before, after := loop.Share([]string{"a", "b", n}, "a"), loop.Share([]string{"a", "b"}, "a")
		if slices.ContainsFunc(before, func(p int) bool { return !slices.Contains(after, p) }) {
			return n
		}
	}
}

func TestWhatADeadReplicaHeldDoesNotWaitForWhatMovesAmongTheOthers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	run(t, intake(in))
	var mu sync.Mutex
	holders, handled := map[int]string{}, map[int]bool{}
	replicas := map[string]*replica{}
	third := thirdMember()
	goOn, clock := make(chan struct{}), loop.NewClock()
	end := sync.OnceFunc(func() { close(goOn) })
	for _, n := range []string{"a", "b", third} {
		replicas[n] = certs(t, s, n, func(_ context.Context, turn *loop.Turn) error {
			mu.Lock()
			holders[turn.Key.Partition()] = n
			if len(turn.Events) > 0 {
				handled[turn.Key.Partition()] = true
			}
			mu.Unlock()
			if turn.Woken("long") {
				<-goOn
			}
			return nil
		}, setClock(clock))
	}
	t.Cleanup(end) // before the replicas stop, which wait for their turns
	look := func() map[int]string {
		for _, r := range replicas {
			if wake := r.wake.Load(); wake != nil {
				for p := range name.Partitions {
					(*wake)(tenantIn(p), loop.Wake{Kind: "look"})
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(holders)
	}
	shared := func() bool {
		sum, least := 0.0, 16.0
		for _, r := range replicas {
			n := held(t, r.registry)
			sum, least = sum+n, min(least, n)
		}
		return sum == name.Partitions && least >= name.Partitions/4
	}
	natstest.Eventually(t, "three replicas share the partitions", shared)
	natstest.Eventually(t, "each partition has a turn", func() bool { return len(look()) == name.Partitions })
	mu.Lock()
	var dead []int
	for p, n := range holders {
		if n == third {
			dead = append(dead, p)
		}
	}
	mu.Unlock()
	for p := range name.Partitions {
		for _, n := range []string{"a", "b"} {
			(*replicas[n].wake.Load())(tenantIn(p), loop.Wake{Kind: "long"})
		}
	}
	replicas[third].bus.Close() // it can't say goodbye
	delete(replicas, third)
	a, b := replicas["a"].loop, replicas["b"].loop
	for !a.Heard(third).IsZero() || !b.Heard(third).IsZero() {
		clock.Step(loop.Heartbeat)
		natstest.Eventually(t, "the others say that they live", func() bool {
			now := clock.Now()
			return a.Heard("a").Equal(now) && a.Heard("b").Equal(now) && b.Heard("a").Equal(now) && b.Heard("b").Equal(now)
		})
	}
	for _, p := range dead {
		e := in.NewEvent(tenantIn(p), fmt.Sprint("after-", p), event.FactType("intake", event.Accepted), map[string]string{}, time.Now())
		natstest.Publish(t, in, tenantIn(p).FactSubject("intake", event.Accepted), e)
	}
	natstest.Eventually(t, "its partitions' events have turns while none of the others' ends", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled) == len(dead)
	})
}

// deleteStream deletes a stream as intake, which may.
func deleteStream(t *testing.T, b *events.Bus, stream string) {
	t.Helper()
	if err := b.JetStream().DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
}

func TestALostBucketOfLeasesIsMadeAnewAndWorkGoesOn(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	run(t, intake(in), realTime)
	turns := make(chan events.Key, 100)
	r := certs(t, s, "a", func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant != nil {
			turns <- turn.Key
		}
		return nil
	}, realTime)
	<-r.lists
	deleteStream(t, in, "KV_"+events.BucketLeases)
	natstest.Eventually(t, "the bucket is there, with the claims of both services", func() bool {
		for _, service := range []string{"intake", "certs"} {
			st, err := in.JetStream().Stream(t.Context(), "KV_"+events.BucketLeases)
			if err != nil {
				return false
			}
			if _, err := st.GetLastMsgForSubject(t.Context(), "$KV."+events.BucketLeases+"."+service+".claims"); err != nil {
				return false
			}
		}
		return true
	})
	apply(t, s.Connect(t, events.UserPortal, ""), tenantIn(5), "after")
	if got := <-turns; got != tenantIn(5) {
		t.Errorf("turn of %s", got)
	}
	if len(r.lists) > 0 {
		t.Errorf("everything was listed anew: %v", <-r.lists)
	}
}

func TestALostStreamOfFactsIsNoticedByWhoConsumesIt(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	run(t, intake(in), realTime)
	turns := make(chan events.Key, 100)
	r := certs(t, s, "a", func(_ context.Context, turn *loop.Turn) error { turns <- turn.Key; return nil }, realTime)
	<-r.lists
	apply(t, s.Connect(t, events.UserPortal, ""), tenantIn(5), "before")
	<-turns // so it consumes
	deleteStream(t, in, events.StreamFacts)
	natstest.Receive(t, "a replica to notice, and to list everything again", r.lists)
}

func TestALostStreamThatNobodyConsumesIsMadeAnew(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	by := s.Connect(t, "intake", "")
	cfg := s.Config("intake", "a")
	way := startWay(t, strings.TrimPrefix(cfg.URL, "nats://"))
	cfg.URL = "nats://" + way.Addr().String()
	in, err := events.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	run(t, intake(in), realTime)
	made := func(stream string) {
		t.Helper()
		natstest.Eventually(t, stream+" is there", func() bool {
			_, err := by.JetStream().Stream(t.Context(), stream)
			return err == nil
		})
	}
	key := tenantIn(5)
	apply(t, s.Connect(t, events.UserPortal, ""), key, "before")
	made("KV_" + key.Bucket()) // so it has provisioned
	way.Cut()
	deleteStream(t, by, events.StreamStatus)
	way.Open()
	made(events.StreamStatus)
	for _, stream := range []string{events.StreamStatus, events.StreamDead, "KV_" + events.BucketCommands} {
		deleteStream(t, by, stream)
		made(stream)
	}
}

func TestALossIsNoticedThoughAnotherReplicaMadeTheStreamAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	run(t, intake(in), realTime)
	cfg := s.Config("certs", "a")
	way := startWay(t, strings.TrimPrefix(cfg.URL, "nats://"))
	cfg.URL = "nats://" + way.Addr().String()
	turns := make(chan events.Key, 100)
	r := certsOn(t, cfg, func(_ context.Context, turn *loop.Turn) error { turns <- turn.Key; return nil }, realTime)
	<-r.lists
	apply(t, s.Connect(t, events.UserPortal, ""), tenantIn(5), "before")
	<-turns // so it consumes
	way.Cut()
	deleteStream(t, in, events.StreamFacts)
	if err := in.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	way.Open()
	natstest.Receive(t, "a replica to notice, and to list everything again", r.lists)
}

// way is a way to a server that can be cut: then its connections end, and new ones too.
type way struct {
	net.Listener
	mu   sync.Mutex
	cut  bool
	open []net.Conn
}

func startWay(t *testing.T, server string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{Listener: l}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); w.Cut(); wg.Wait() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.open = append(w.open, client, there)
			if w.cut {
				_, _ = client.Close(), there.Close()
			}
			w.mu.Unlock()
			pass := func(to, from net.Conn) { _, _ = io.Copy(to, from); _, _ = to.Close(), from.Close() }
			wg.Go(func() { pass(there, client) })
			wg.Go(func() { pass(client, there) })
		}
	})
	return w
}

func (w *way) Open() { w.set(false) }

func (w *way) Cut() { w.set(true) }

func (w *way) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut = cut; cut {
		for _, c := range w.open {
			_ = c.Close()
		}
		w.open = nil
	}
}

// At rest there is one sign of life, and nothing that it is about.
func TestAtRestAReplicaSaysOnlyThatItLives(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	clock := loop.NewClock()
	r := certs(t, s, "a", func(context.Context, *loop.Turn) error { return nil }, setClock(clock))
	<-r.lists
	operator := s.Connect(t, events.UserOperator, "").Conn()
	beats, err := operator.SubscribeSync("$KV." + events.BucketLeases + ".certs.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.Flush(); err != nil { // so that the server knows of it before the first
		t.Fatal(err)
	}
	next := func() {
		t.Helper()
		clock.Step(loop.Heartbeat)
		natstest.Next(t, "a sign of life", beats)
	}
	next() // consumers have asked by now, if the machine isn't busy
	during := func(signs uint64) (sent uint64) {
		t.Helper()
		next() // what was heard meanwhile is not counted
		before := r.bus.Conn().Stats().OutMsgs
		for range signs {
			next()
		}
		return r.bus.Conn().Stats().OutMsgs - before
	}
	// One may be counted before it is heard; twice it looks at its claims; each partition may ask for events anew.
	const signs, most = 5, 5 + 3 + name.Partitions
	var sent []uint64
	for range 6 { // it isn't at rest while its consumers open, or when a sign of life was answered too late
		if sent = append(sent, during(signs)); sent[len(sent)-1] <= most {
			return
		}
	}
	t.Errorf("%d messages between %d signs of life, time after time", sent, signs)
}

func TestAnEventThatWaitedThroughManyDeliveriesIsDone(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	key := tenantIn(2)
	e := in.NewEvent(key, "1", event.FactType("intake", event.Accepted), map[string]string{}, time.Now())
	natstest.Publish(t, in, key.FactSubject("intake", event.Accepted), e)
	// What replicas that ended before its turn leave behind.
	bus := s.Connect(t, "certs", "")
	for range 25 {
		if err := bus.Unpin(t.Context(), events.StreamFacts, events.Consumer("certs", 2)); err != nil {
			t.Fatal(err)
		}
		c, err := bus.JetStream().Consumer(t.Context(), events.StreamFacts, events.Consumer("certs", 2))
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Fetch(1, jetstream.FetchMaxWait(10*time.Second), jetstream.FetchPriorityGroup(events.PriorityGroup))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			if err := m.Nak(); err != nil {
				t.Fatal(err)
			}
		}
	}
	done := make(chan string, 10)
	certs(t, s, "a", func(_ context.Context, turn *loop.Turn) error {
		for _, e := range turn.Events {
			done <- e.ID()
		}
		return nil
	})
	if id := natstest.Receive(t, "the event is not given up", done); id != "1" {
		t.Errorf("event %s", id)
	}
}

// What waits for its turn is neither kept alive nor lost: of many events of a tenant whose turn takes long, one is in work.
func TestOnlyEventsInWorkAreKeptAlive(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	key := tenantIn(2)
	// Longer than a machine stalls, of which the sign of life each third of it leaves two.
	const waiting, ackWait = 50, 8 * time.Second
	s.SetAckWait(t, "certs", ackWait)
	publish := func(i int) {
		t.Helper()
		e := in.NewEvent(key, fmt.Sprint(i), event.FactType("intake", event.Accepted), map[string]string{}, time.Now())
		natstest.Publish(t, in, key.FactSubject("intake", event.Accepted), e)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	seen := map[string]int{}
	r := certs(t, s, "a", func(_ context.Context, turn *loop.Turn) error {
		once.Do(func() { close(begun); <-goOn })
		mu.Lock()
		defer mu.Unlock()
		for _, e := range turn.Events {
			seen[e.ID()]++
		}
		return nil
	}, func(l *loop.Loop) { l.SetAckWait(ackWait) })
	<-r.lists
	publish(0)
	<-begun
	for i := range waiting {
		publish(i + 1)
	}
	redelivered := func() float64 {
		families, _ := r.registry.Gather()
		for _, f := range families {
			if f.GetName() == "stoker_redeliveries_total" {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return 0
	}
	before := r.bus.Conn().Stats().OutMsgs
	natstest.Eventually(t, "what waits is delivered a second time, and a third", func() bool { return redelivered() >= 2*waiting })
	facts, err := r.bus.JetStream().Consumer(t.Context(), events.StreamFacts, events.Consumer("certs", 2))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := facts.Info(t.Context()); err != nil || info.NumRedelivered != waiting {
		t.Errorf("%d events were delivered again while %d waited: %v", info.NumRedelivered, waiting, err)
	}
	// Signs of life of the one event in work, and the lease's.
	if sent := r.bus.Conn().Stats().OutMsgs - before; sent > waiting {
		t.Errorf("%d messages while %d events waited", sent, waiting)
	}
	close(goOn)
	natstest.Eventually(t, "every event has had its turn", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == waiting+1 })
	mu.Lock()
	defer mu.Unlock()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %s was handled %d times", id, n)
		}
	}
	if redelivered() > 4*waiting {
		t.Errorf("%v redeliveries of %d events", redelivered(), waiting)
	}
}
