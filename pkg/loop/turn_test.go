package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestAFactIsNotHandledBeforeItsState(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	key := events.Tenant("default", "demo")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Add(8 * time.Second) // for twice as long, the state may be on its way
	put := func(generation int64, at time.Time) {
		data, _ := json.Marshal(state.State{UID: "u", Generation: generation, UpdatedAt: at, Data: event.Marshal(state.Tenant{Namespace: "default", Name: "demo"})})
		m := nats.NewMsg("$KV." + key.Bucket() + ".spec")
		m.Data = data
		if _, err := in.JetStream().PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	// What a reader sees whose server lags: the fact of generation 2, the state of generation 1.
	put(1, now.Add(-time.Minute))
	about := event.About{Namespace: "default", Name: "demo", UID: "u", Generation: 2}
	e := in.NewEvent(key, "2", event.FactType("intake", event.Accepted), event.IntakeAccepted{About: about}, now)
	natstest.Publish(t, in, key.FactSubject("intake", event.Accepted), e)
	cfg, asked := s.Config("certs", ""), make(chan struct{}, 100)
	cfg.Log = natstest.LogTo(func(message string) {
		if message == "state is behind an event, reading it again" {
			asked <- struct{}{}
		}
	})
	certs, err := events.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(certs.Close)
	handled := make(chan int64, 10)
	run(t, &loop.Loop{Bus: certs, Service: "certs", Handle: func(_ context.Context, turn *loop.Turn) error {
		handled <- turn.Generation
		return nil
	}})
	<-asked
	put(2, now)
	if got := <-handled; got != 2 {
		t.Errorf("generation %d was handled with the fact of generation 2", got)
	}
}

// A command is worked on although the tenant's bucket, which is there, doesn't answer, as after a restart of the server: the
// state that is there must not be taken for none.
func TestCommandForABucketThatDoesNotAnswerYet(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	key := events.Tenant("default", "demo")
	answer := func(direct bool) error {
		st, err := in.JetStream().Stream(t.Context(), "KV_"+key.Bucket())
		if err != nil {
			return err
		}
		cfg := st.CachedInfo().Config
		cfg.AllowDirect = direct
		_, err = in.JetStream().UpdateStream(t.Context(), cfg)
		return err
	}
	l := intake(in)
	inner := l.Handle
	var again atomic.Bool
	l.Handle = func(ctx context.Context, turn *loop.Turn) error {
		if len(turn.Events) == 0 || turn.Events[0].ID() != "2" || again.Swap(true) {
			return inner(ctx, turn)
		}
		if turn.Own() != nil {
			t.Error("the bucket answers")
		}
		err := inner(ctx, turn)
		if !errors.Is(err, intent.ErrStale) {
			t.Errorf("written: %v", err)
		}
		if err := answer(true); err != nil {
			t.Error(err)
		}
		return err
	}
	run(t, l)
	portal, operator := s.Connect(t, events.UserPortal, ""), s.Connect(t, events.UserOperator, "")
	accepted := func(id string, generation int64) {
		t.Helper()
		apply(t, portal, key, id)
		natstest.Eventually(t, "command "+id+" is accepted", func() bool {
			st, err := operator.State(t.Context(), key, "intake")
			return err == nil && st.Inputs == id && st.Generation == generation
		})
	}
	accepted("1", 1)
	if err := answer(false); err != nil {
		t.Fatal(err)
	}
	accepted("2", 2)
	if !again.Load() {
		t.Error("it was not tried again")
	}
}

// What can't be read in a tenant's bucket is made anew by its owner, and nothing of the tenant is frozen meanwhile.
func TestStateThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in, key := s.Connect(t, "intake", ""), events.Tenant("default", "demo")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	corrupt := func(of, data string) {
		t.Helper()
		m := nats.NewMsg("$KV." + key.Bucket() + "." + events.StateKey(of))
		m.Data = []byte(data)
		if _, err := s.Connect(t, of, "").JetStream().PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	run(t, &loop.Loop{Bus: in, Service: "intake", Commands: true, Ensure: in.Provision, Handle: func(ctx context.Context, turn *loop.Turn) error {
		if !turn.Unreadable() {
			return nil
		}
		if turn.Own() != nil || turn.Tenant != nil {
			t.Error("a state was made of it")
		}
		if err := turn.Adopt(ctx, "u", 1); err != nil {
			return err
		}
		return turn.Done(ctx, loop.Outcome{Step: event.Accepted, Data: state.Tenant{}, Facts: []loop.Tell{{What: event.Accepted, Data: event.IntakeAccepted{About: turn.About()}}}})
	}})
	operator := s.Connect(t, events.UserOperator, "")
	type seen struct {
		generation int64
		own        bool
	}
	handled := make(chan seen, 100)
	run(t, &loop.Loop{Bus: s.Connect(t, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		var data map[string]string
		if err := turn.OwnData(&data); err != nil {
			return err
		}
		if len(turn.Events) > 0 { // and not what the loop asks by itself
			handled <- seen{turn.Generation, turn.Own() != nil}
		}
		return turn.Done(ctx, loop.Outcome{Step: event.Issued, Data: map[string]string{"a": "b"}})
	}})
	n := 0
	wake := func() {
		t.Helper()
		n++
		about := event.About{Namespace: "default", Name: "demo", UID: "u", Generation: 1}
		e := in.NewEvent(key, fmt.Sprint("wake-", n), event.FactType("intake", event.Accepted), event.IntakeAccepted{About: about}, time.Time{})
		natstest.Publish(t, in, key.FactSubject("intake", event.Accepted), e)
	}
	for _, data := range []string{"\xff not JSON", `{"uid":"u","generation":1,"data":"no tenant"}`} {
		corrupt("intake", data)
		wake()
		for got := range handled {
			if got.generation == 1 {
				break
			}
		}
		if spec, err := in.State(t.Context(), key, "intake"); err != nil || spec.Generation != 1 {
			t.Fatalf("%s: %+v, %v", data, spec, err)
		}
	}
	for _, data := range []string{"{", `{"uid":"u","generation":1,"data":"no map"}`} {
		natstest.Eventually(t, "certs has a state", func() bool {
			st, err := operator.State(t.Context(), key, "certs")
			return err == nil && strings.Contains(string(st.Data), `"a":"b"`)
		})
		for len(handled) > 0 {
			<-handled
		}
		corrupt("certs", data)
		wake()
		natstest.Eventually(t, "a turn without an own state", func() bool { return !(<-handled).own })
	}
}
