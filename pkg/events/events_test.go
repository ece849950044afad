package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/events/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nats starts a server with Stoker's users and provisions it.
func startNATS(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.Start(t.Context(), t.TempDir(), "127.0.0.1:0", testLog())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if err := connect(t, s, "intake", "").Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func testLog() *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

func connect(t *testing.T, s *server.Server, user, replica string) *events.Bus {
	t.Helper()
	if replica == "" {
		replica = "test"
	}
	b, err := events.Connect(events.Config{URL: s.URL(), User: user, SeedFile: s.SeedFile(user), Replica: replica, Log: testLog()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// run runs a loop until the test ends or the returned function is called; that waits for it.
func run(t *testing.T, l *events.Loop) (stop func()) {
	t.Helper()
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

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // between two looks at a condition
	}
}

// intake makes what the real one makes of an apply: bucket, spec, fact.
func intake(b *events.Bus) *events.Loop {
	return &events.Loop{Bus: b, Service: "intake", Commands: true, Ensure: b.Provision, Handle: func(ctx context.Context, t *events.Turn) error {
		if len(t.Events) == 0 {
			return nil
		}
		if err := b.CreateBucket(ctx, t.Key); err != nil {
			return err
		}
		t.UID, t.Generation = "uid-"+t.Key.Name, t.Generation+1
		return t.Done(ctx, events.Outcome{
			Step: event.Accepted, Inputs: t.Events[0].ID(), Data: state.Tenant{Namespace: t.Key.Namespace, Name: t.Key.Name},
			Facts: []events.Tell{{What: event.Accepted, Data: event.IntakeAccepted{About: t.About()}}},
		})
	}}
}

func apply(t *testing.T, b *events.Bus, key events.Key, id string) {
	t.Helper()
	e := b.NewEvent(key, id, event.TenantApply, map[string]string{}, time.Now())
	if _, err := b.Publish(t.Context(), key.CommandSubject(), e); err != nil {
		t.Fatal(err)
	}
}

func TestCommandsBecomeFactsOfOtherServices(t *testing.T) {
	s := startNATS(t)
	run(t, intake(connect(t, s, "intake", "")))
	certs := connect(t, s, "certs", "")
	var mu sync.Mutex
	seen := map[string]int{}
	run(t, &events.Loop{Bus: certs, Service: "certs", Handle: func(ctx context.Context, turn *events.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		mu.Lock()
		seen[turn.Tenant.Name]++
		mu.Unlock()
		return turn.Done(ctx, events.Outcome{Step: event.Issued, Facts: []events.Tell{{What: event.Issued, Data: event.CertsIssued{About: turn.About()}}}})
	}})
	portal := connect(t, s, events.UserPortal, "")
	for i := range 40 {
		apply(t, portal, events.Tenant("default", fmt.Sprintf("t%d", i)), fmt.Sprintf("cmd-%d", i))
	}
	operator := connect(t, s, events.UserOperator, "")
	eventually(t, "a fact certs.issued for each of forty tenants", func() bool {
		info := subjects(t, operator, "stoker.fact.*.*.*.certs.issued")
		return len(info) == 40
	})
	t.Run("an event delivered by its id twice is one", func(t *testing.T) {
		key := events.Tenant("default", "t0")
		dup, err := portal.Publish(t.Context(), key.CommandSubject(), portal.NewEvent(key, "cmd-0", event.TenantApply, nil, time.Now()))
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

func TestSubjectsKeepUsersApart(t *testing.T) {
	s := startNATS(t)
	in := connect(t, s, "intake", "")
	key := events.Tenant("default", "demo")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{events.UserPortal, "certs", "status"} {
		b := connect(t, s, user, "")
		t.Run(user+" may not tell workload's facts", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			e := b.NewEvent(key, "x", event.FactType("workload", event.Available), nil, time.Now())
			if _, err := b.Publish(ctx, key.FactSubject("workload", event.Available), e); err == nil {
				t.Error("the server took it")
			}
		})
	}
	t.Run("a portal may not read a tenant's bucket", func(t *testing.T) {
		b := connect(t, s, events.UserPortal, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if kv, err := b.JetStream().KeyValue(ctx, key.Bucket()); err == nil {
			t.Errorf("got bucket %s", kv.Bucket())
		}
		if m, err := b.Conn().RequestWithContext(ctx, "$JS.API.DIRECT.GET.KV_"+key.Bucket()+".$KV."+key.Bucket()+".spec", nil); err == nil {
			t.Errorf("the server answered %v", m.Header)
		}
	})
}

func TestRetriesAndDeadLetters(t *testing.T) {
	s := startNATS(t)
	run(t, intake(connect(t, s, "intake", "")))
	var mu sync.Mutex
	tries := map[string]int{}
	good := make(chan string, 10)
	run(t, &events.Loop{Bus: connect(t, s, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *events.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		mu.Lock()
		tries[turn.Key.Name]++
		n := tries[turn.Key.Name]
		mu.Unlock()
		switch turn.Key.Name {
		case "poison":
			return &events.Permanent{Reason: "BadName", Message: "the name is poison"}
		case "panic":
			panic("boom")
		case "flaky":
			if n < 4 {
				return errors.New("not yet")
			}
		case "waiting":
			if n < 8 {
				return &events.Unavailable{Dependency: "datastore x", Err: errors.New("refused")}
			}
		}
		good <- turn.Key.Name
		return turn.Done(ctx, events.Outcome{Step: "issued"})
	}})
	portal := connect(t, s, events.UserPortal, "")
	for _, n := range []string{"poison", "panic", "flaky", "waiting", "fine"} {
		apply(t, portal, events.Tenant("default", n), "cmd-"+n)
	}
	got := map[string]bool{}
	for len(got) < 3 {
		select {
		case n := <-good:
			got[n] = true
		case <-time.After(30 * time.Second):
			t.Fatalf("only %v were done", got)
		}
	}
	operator := connect(t, s, events.UserOperator, "")
	st, err := operator.JetStream().Stream(t.Context(), events.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"poison", "panic"} {
		key := events.Tenant("default", n)
		eventually(t, n+" in the dead letters and in its state", func() bool {
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
	s := startNATS(t)
	run(t, intake(connect(t, s, "intake", "")))
	var mu sync.Mutex
	by := map[string]string{}
	replica := func(n string) (*events.Bus, func()) {
		b := connect(t, s, "certs", n)
		return b, run(t, &events.Loop{Bus: b, Service: "certs", Handle: func(ctx context.Context, turn *events.Turn) error {
			if turn.Tenant == nil {
				return nil
			}
			mu.Lock()
			by[turn.Key.Name] = n
			mu.Unlock()
			return turn.Done(ctx, events.Outcome{Step: "issued", Inputs: fmt.Sprint(turn.Generation)})
		}})
	}
	_, stopA := replica("a")
	replica("b")
	portal := connect(t, s, events.UserPortal, "")
	round := 0
	share := func() map[string]int {
		mu.Lock()
		clear(by)
		mu.Unlock()
		round++
		for i := range 64 {
			apply(t, portal, events.Tenant("default", fmt.Sprintf("t%d", i)), fmt.Sprintf("r%d-%d", round, i))
		}
		eventually(t, "all 64 tenants worked on", func() bool { mu.Lock(); defer mu.Unlock(); return len(by) == 64 })
		mu.Lock()
		defer mu.Unlock()
		n := map[string]int{}
		for _, r := range by {
			n[r]++
		}
		return n
	}
	eventually(t, "both replicas work", func() bool { return len(share()) == 2 })
	stopA()
	if n := share(); n["b"] != 64 {
		t.Errorf("after a has left, b works on all: %v", n)
	}
}

func TestFactsOwedByACrashAreTold(t *testing.T) {
	s := startNATS(t)
	in := connect(t, s, "intake", "")
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
	certs := connect(t, s, "certs", "")
	owed := state.Fact{ID: "owed", What: event.Issued, Time: time.Now(), Data: event.Marshal(event.CertsIssued{})}
	put(certs, "certs", state.State{UID: "u", Generation: 1, Step: event.Issued, Facts: []state.Fact{owed}})
	woken := make(chan struct{}, 1)
	run(t, &events.Loop{
		Bus: certs, Service: "certs",
		Handle: func(context.Context, *events.Turn) error { woken <- struct{}{}; return nil },
		Watch: func(ctx context.Context, partitions []int, wake events.Wake) error {
			wake(key, "found")
			<-ctx.Done()
			return nil
		},
	})
	<-woken
	operator := connect(t, s, events.UserOperator, "")
	if got := subjects(t, operator, key.FactSubject("certs", event.Issued)); len(got) != 1 {
		t.Errorf("facts on the stream: %v", got)
	}
}

func TestTimers(t *testing.T) {
	s := startNATS(t)
	run(t, intake(connect(t, s, "intake", "")))
	due := make(chan time.Time, 1)
	run(t, &events.Loop{Bus: connect(t, s, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *events.Turn) error {
		for _, e := range turn.Events {
			if e.What == event.Due {
				due <- time.Now()
				return nil
			}
		}
		return turn.At(ctx, time.Now().Add(time.Second))
	}})
	apply(t, connect(t, s, events.UserPortal, ""), events.Tenant("default", "demo"), "cmd")
	select {
	case <-due:
	case <-time.After(20 * time.Second):
		t.Fatal("the timer never came")
	}
}

func TestEventsOfOneTenantAreInOrder(t *testing.T) {
	s := startNATS(t)
	var mu sync.Mutex
	order := map[string][]string{}
	b := connect(t, s, "intake", "")
	run(t, &events.Loop{Bus: b, Service: "intake", Commands: true, Handle: func(_ context.Context, turn *events.Turn) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range turn.Events {
			order[turn.Key.Name] = append(order[turn.Key.Name], e.ID())
		}
		return nil
	}})
	portal := connect(t, s, events.UserPortal, "")
	for i := range 20 {
		for _, n := range []string{"a", "b", "c"} {
			apply(t, portal, events.Tenant("default", n), fmt.Sprintf("%s-%02d", n, i))
		}
	}
	eventually(t, "all sixty commands", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order["a"])+len(order["b"])+len(order["c"]) == 60
	})
	for n, ids := range order {
		for i, id := range ids {
			if want := fmt.Sprintf("%s-%02d", n, i); id != want {
				t.Fatalf("%s: event %d is %s, want %s", n, i, id, want)
			}
		}
	}
}

func TestJetStreamLost(t *testing.T) {
	s := startNATS(t)
	run(t, intake(connect(t, s, "intake", "")))
	done := make(chan string, 10)
	run(t, &events.Loop{Bus: connect(t, s, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *events.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		done <- turn.Key.Name
		return turn.Done(ctx, events.Outcome{Step: "issued"})
	}})
	portal := connect(t, s, events.UserPortal, "")
	apply(t, portal, events.Tenant("default", "before"), "1")
	<-done
	s.Stop()
	if err := os.RemoveAll(s.JetStreamDir()); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "streams are back and take commands", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		key := events.Tenant("default", "after")
		_, err := portal.Publish(ctx, key.CommandSubject(), portal.NewEvent(key, "2", event.TenantApply, nil, time.Now()))
		return err == nil
	})
	for {
		select {
		case n := <-done:
			if n == "after" {
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatal("the event after the loss was never handled")
		}
	}
}

func TestPartitionIsTheServers(t *testing.T) {
	s := startNATS(t)
	portal := connect(t, s, events.UserPortal, "")
	in := connect(t, s, "intake", "")
	st, err := in.JetStream().Stream(t.Context(), events.StreamIntake)
	if err != nil {
		t.Fatal(err)
	}
	_ = st
	for i := range 50 {
		key := events.Tenant(fmt.Sprintf("ns-%d", i*7), fmt.Sprintf("name-%d", i*i))
		apply(t, portal, key, fmt.Sprintf("p-%d", i))
	}
	dotted := events.DataStore("main.eu-1")
	if _, err := portal.Publish(t.Context(), dotted.CommandSubject(), portal.NewEvent(dotted, "dotted", event.DataStoreDelete, nil, time.Now())); err != nil {
		t.Fatal(err)
	}
	info, err := st.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 51 {
		key := events.Tenant(fmt.Sprintf("ns-%d", i*7), fmt.Sprintf("name-%d", i*i))
		if i == 50 {
			key = dotted
		}
		want := fmt.Sprintf("stoker.intake.%d.%s.%s.%s", name.Partition(key.Namespace, key.Name), key.Kind, key.Namespace, name.Token(key.Name))
		if info.State.Subjects[want] != 1 {
			t.Errorf("the server stored %s under another partition than %d", key, key.Partition())
		}
	}
}
