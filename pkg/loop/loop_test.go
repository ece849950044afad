package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// run runs a loop until the test ends or the returned function is called, which waits for the loop. The lease lasts by a clock that stands still,
// unless the test has set another.
func run(t *testing.T, l *loop.Loop, set ...func(*loop.Loop)) (stop func()) {
	t.Helper()
	for _, f := range set {
		f(l)
	}
	if !l.HasClock() {
		l.SetClock(loop.NewClock())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("loop %s: %v", l.Service, err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// intake makes what the real one makes of an apply: bucket, spec, fact.
func intake(b *events.Bus) *loop.Loop {
	return &loop.Loop{Bus: b, Service: "intake", Commands: true, Ensure: b.Provision, Handle: func(ctx context.Context, t *loop.Turn) error {
		if len(t.Events) == 0 || !t.Events[0].IsCommand() {
			return nil
		}
		if err := b.CreateBucket(ctx, t.Key); err != nil {
			return err
		}
		t.UID, t.Generation = "uid-"+t.Key.Name, t.Generation+1
		return t.Done(ctx, loop.Outcome{
			Step: event.Accepted, Inputs: t.Events[0].ID(), Data: state.Tenant{Namespace: t.Key.Namespace, Name: t.Key.Name},
			Facts: []loop.Tell{{What: event.Accepted, Data: event.IntakeAccepted{About: t.About()}}},
		})
	}}
}

func apply(t *testing.T, b *events.Bus, key events.Key, id string) {
	t.Helper()
	natstest.Publish(t, b, key.CommandSubject(), b.NewEvent(key, id, event.TenantApply, map[string]string{}, time.Now()))
}

func TestCommandsBecomeFactsOfOtherServices(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	certs := s.Connect(t, "certs", "")
	var mu sync.Mutex
	seen := map[string]int{}
	run(t, &loop.Loop{Bus: certs, Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		mu.Lock()
		seen[turn.Tenant.Name]++
		mu.Unlock()
		return turn.Done(ctx, loop.Outcome{Step: event.Issued, Facts: []loop.Tell{{What: event.Issued, Data: event.CertsIssued{About: turn.About()}}}})
	}})
	portal := s.Connect(t, events.UserPortal, "")
	for i := range 40 {
		apply(t, portal, events.Tenant("default", fmt.Sprintf("t%d", i)), fmt.Sprintf("cmd-%d", i))
	}
	operator := s.Connect(t, events.UserOperator, "")
	natstest.Eventually(t, "a fact certs.issued for each of forty tenants", func() bool {
		info := subjects(t, operator, "stoker.fact.*.*.*.certs.issued")
		return len(info) == 40
	})
	t.Run("a fact delivered by its id twice is one", func(t *testing.T) {
		key, certs := events.Tenant("default", "t0"), s.Connect(t, "certs", "")
		e := certs.NewEvent(key, "twice", event.FactType("certs", event.Rotated), nil, time.Now())
		natstest.Publish(t, certs, key.FactSubject("certs", event.Rotated), e)
		dup, err := certs.Publish(t.Context(), key.FactSubject("certs", event.Rotated), e)
		if err != nil || !dup {
			t.Errorf("duplicate %v, error %v", dup, err)
		}
	})
}

func subjects(t *testing.T, b *events.Bus, filter string) map[string]uint64 {
	t.Helper()
	st, err := b.JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	info, err := st.Info(t.Context(), jetstream.WithSubjectFilter(filter))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Subjects
}

func TestRetriesAndDeadLetters(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := intake(s.Connect(t, "intake", ""))
	in.Ensure = nil // which would undo this:
	s.SetAckWait(t, "intake", time.Minute)
	s.SetAckWait(t, "certs", time.Minute)
	run(t, in)
	var mu sync.Mutex
	tries := map[string]int{}
	good := make(chan string, 10)
	l := &loop.Loop{Bus: s.Connect(t, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		mu.Lock()
		tries[turn.Key.Name]++
		n := tries[turn.Key.Name]
		mu.Unlock()
		switch turn.Key.Name {
		case "poison":
			return &intent.Permanent{Reason: "BadName", Message: "the name is poison"}
		case "panic":
			panic("boom")
		case "flaky":
			if n < 4 {
				return errors.New("not yet")
			}
		case "waiting":
			if n < 8 {
				return &intent.Unavailable{Dependency: "datastore x", Err: errors.New("refused")}
			}
		}
		good <- turn.Key.Name
		return turn.Done(ctx, loop.Outcome{Step: "issued"})
	}}
	run(t, l)
	portal := s.Connect(t, events.UserPortal, "")
	for _, n := range []string{"poison", "panic", "flaky", "waiting", "fine"} {
		apply(t, portal, events.Tenant("default", n), "cmd-"+n)
	}
	got := map[string]bool{}
	for len(got) < 3 {
		got[natstest.Receive(t, fmt.Sprintf("three are done, not only %v", got), good)] = true
	}
	operator := s.Connect(t, events.UserOperator, "")
	st, err := operator.JetStream().Stream(t.Context(), events.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"poison", "panic"} {
		key := events.Tenant("default", n)
		natstest.Eventually(t, n+" in the dead letters and in its state", func() bool {
			m, err := st.GetLastMsgForSubject(t.Context(), key.DeadSubject("certs"))
			return err == nil && m.Header.Get("Stoker-Cause") != "" && m.Header.Get("ce-type") == event.FactType("intake", event.Accepted) &&
				len(subjects(t, operator, key.FactSubject("certs", event.Failed))) == 1
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if tries["poison"] != 1 || tries["panic"] != 1 {
		t.Errorf("what can't succeed was tried again: %v", tries)
	}
}

func TestReplicasShareAndTakeOver(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	var mu sync.Mutex
	by := map[string]string{}
	replica := func(n string) (*events.Bus, func()) {
		b := s.Connect(t, "certs", n)
		return b, run(t, &loop.Loop{Bus: b, Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
			if turn.Tenant == nil {
				return nil
			}
			mu.Lock()
			by[turn.Key.Name] = n
			mu.Unlock()
			return turn.Done(ctx, loop.Outcome{Step: "issued", Inputs: fmt.Sprint(turn.Generation)})
		}})
	}
	_, stopA := replica("a")
	replica("b")
	portal := s.Connect(t, events.UserPortal, "")
	round := 0
	share := func() map[string]int {
		mu.Lock()
		clear(by)
		mu.Unlock()
		round++
		for i := range 64 {
			apply(t, portal, events.Tenant("default", fmt.Sprintf("t%d", i)), fmt.Sprintf("r%d-%d", round, i))
		}
		natstest.Eventually(t, "all 64 tenants worked on", func() bool { mu.Lock(); defer mu.Unlock(); return len(by) == 64 })
		mu.Lock()
		defer mu.Unlock()
		n := map[string]int{}
		for _, r := range by {
			n[r]++
		}
		return n
	}
	natstest.Eventually(t, "both replicas work", func() bool { return len(share()) == 2 })
	stopA()
	if n := share(); n["b"] != 64 {
		t.Errorf("after a has left, b works on all: %v", n)
	}
}

func TestFactsOwedByACrashAreTold(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	key := events.Tenant("default", "demo")
	// What a crash between the write and the publish leaves: a state with a fact that the stream lacks.
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	put := func(b *events.Bus, of string, st state.State) {
		data, _ := json.Marshal(st)
		m := nats.NewMsg("$KV." + key.Bucket() + "." + of)
		m.Data = data
		if _, err := b.JetStream().PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	put(in, "spec", state.State{UID: "u", Generation: 1, Data: event.Marshal(state.Tenant{Namespace: "default", Name: "demo"})})
	certs := s.Connect(t, "certs", "")
	owed := state.Fact{ID: "owed", What: event.Issued, Time: time.Now(), Data: event.Marshal(event.CertsIssued{})}
	put(certs, "certs", state.State{UID: "u", Generation: 1, Step: event.Issued, Facts: []state.Fact{owed}})
	woken := make(chan struct{}, 1)
	run(t, &loop.Loop{
		Bus: certs, Service: "certs",
		Handle: func(context.Context, *loop.Turn) error { woken <- struct{}{}; return nil },
		Watch: func(ctx context.Context, _ *partition.Held, wake loop.Waker) error {
			wake(key, loop.Wake{Kind: "found"})
			<-ctx.Done()
			return nil
		},
	})
	<-woken
	operator := s.Connect(t, events.UserOperator, "")
	if got := subjects(t, operator, key.FactSubject("certs", event.Issued)); len(got) != 1 {
		t.Errorf("facts on the stream: %v", got)
	}
}

func TestATimerGoesOffAtTheTimeItWasSetForLastAndNotBefore(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	early := make(chan time.Duration, 10)
	var at time.Time
	run(t, &loop.Loop{Bus: s.Connect(t, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		for _, e := range turn.Events {
			if e.What == event.Due {
				early <- time.Until(at)
				return nil
			}
		}
		if err := turn.At(ctx, time.Now().Add(5*time.Second)); err != nil { // late enough for the next to be set before
			return err
		}
		at = time.Now().Add(7 * time.Second)
		return turn.At(ctx, at)
	}})
	apply(t, s.Connect(t, events.UserPortal, ""), events.Tenant("default", "demo"), "cmd")
	if d := natstest.Receive(t, "the timer comes", early); d > 0 {
		t.Errorf("the timer went off %s before its time", d)
	}
}

func TestEventsOfOneTenantAreInOrder(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	var mu sync.Mutex
	order := map[string][]string{}
	b := s.Connect(t, "intake", "")
	run(t, &loop.Loop{Bus: b, Service: "intake", Commands: true, Handle: func(_ context.Context, turn *loop.Turn) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range turn.Events {
			order[turn.Key.Name] = append(order[turn.Key.Name], e.ID())
		}
		return nil
	}})
	portal := s.Connect(t, events.UserPortal, "")
	for i := range 20 {
		for _, n := range []string{"a", "b", "c"} {
			apply(t, portal, events.Tenant("default", n), fmt.Sprintf("%s-%02d", n, i))
		}
	}
	natstest.Eventually(t, "all sixty commands", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order["a"])+len(order["b"])+len(order["c"]) == 60
	})
	mu.Lock()
	defer mu.Unlock()
	for n, ids := range order {
		for i, id := range ids {
			if want := fmt.Sprintf("%s-%02d", n, i); id != want {
				t.Fatalf("%s: event %d is %s, want %s", n, i, id, want)
			}
		}
	}
}

func TestJetStreamLost(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(natstest.ConnectWith(t, s.Config("intake", ""))))
	done := make(chan string, 10)
	b := natstest.ConnectWith(t, s.Config("certs", ""))
	run(t, &loop.Loop{Bus: b, Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		done <- turn.Key.Name
		return turn.Done(ctx, loop.Outcome{Step: "issued"})
	}})
	portal := s.Connect(t, events.UserPortal, "")
	apply(t, portal, events.Tenant("default", "before"), "1")
	<-done
	s.Stop()
	if err := os.RemoveAll(s.JetStreamDir()); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "streams are back and take commands", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		key := events.Tenant("default", "after")
		_, err := portal.Publish(ctx, key.CommandSubject(), portal.NewEvent(key, "2", event.TenantApply, nil, time.Now()))
		return err == nil
	})
	for {
		if natstest.Receive(t, "the event after the loss is handled", done) == "after" {
			return
		}
	}
}
