package loop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

func TestFactsOwedByAFailedPublishAreTold(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	run(t, intake(in))
	limit := func(refuse bool) error { // makes the stream of facts refuse more, as one without a leader would
		st, err := in.JetStream().Stream(t.Context(), events.StreamFacts)
		if err != nil {
			return err
		}
		cfg := st.CachedInfo().Config
		cfg.MaxMsgSize = -1
		if refuse {
			cfg.MaxMsgSize = 1
		}
		_, err = in.JetStream().UpdateStream(t.Context(), cfg)
		return err
	}
	refused := false
	registry := prometheus.NewRegistry()
	run(t, &loop.Loop{Bus: s.Connect(t, "certs", ""), Service: "certs", Metrics: registry, Handle: func(ctx context.Context, turn *loop.Turn) error {
		inputs := fmt.Sprint(turn.Generation)
		if own := turn.Own(); turn.Tenant == nil || own != nil && own.Inputs == inputs {
			return nil // the common case: nothing to do
		}
		if turn.Generation == 2 && !refused {
			refused = true
			if err := limit(true); err != nil {
				t.Error(err)
			}
		}
		return turn.Done(ctx, loop.Outcome{
			Step: event.Issued, Inputs: inputs, Facts: []loop.Tell{{What: event.Issued, Data: event.CertsIssued{About: turn.About()}}},
		})
	}})
	portal, operator := s.Connect(t, events.UserPortal, ""), s.Connect(t, events.UserOperator, "")
	key := events.Tenant("default", "demo")
	told := func() uint64 {
		subject := key.FactSubject("certs", event.Issued)
		return subjects(t, operator, subject)[subject]
	}
	apply(t, portal, key, "1")
	natstest.Eventually(t, "the first fact", func() bool { return told() == 1 })
	apply(t, portal, key, "2")
	natstest.Eventually(t, "the failure is noted in the state that was written", func() bool {
		st, err := operator.State(t.Context(), key, "certs")
		return err == nil && st.Inputs == "2" && st.Failure != nil
	})
	if n := gauge(t, registry, "stoker_facts_owed"); n != 1 {
		t.Errorf("%v objects owe facts", n)
	}
	if err := limit(false); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the fact of what was done", func() bool { return told() == 2 })
	natstest.Eventually(t, "nothing is owed", func() bool { return gauge(t, registry, "stoker_facts_owed") == 0 })
}

// A write that got no answer in time may be in the bucket only after the next turn has read the state before it.
func TestTheFactOfAWriteThatShowsLateIsTold(t *testing.T) {
	t.Parallel()
	s, key := natstest.Start(t), events.Tenant("default", "demo")
	in, certs := s.Connect(t, "intake", ""), s.Connect(t, "certs", "")
	run(t, intake(in))
	late := state.Fact{ID: "late", What: event.Rotated, Time: time.Now(), Data: event.Marshal(event.CertsIssued{})}
	run(t, &loop.Loop{Bus: certs, Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		own := turn.Own()
		switch {
		case turn.Tenant == nil:
			return nil
		case own == nil:
			return turn.Done(ctx, loop.Outcome{
				Step: event.Issued, Inputs: "1", Facts: []loop.Tell{{What: event.Issued, Data: event.CertsIssued{About: turn.About()}}},
			})
		case own.Inputs == "1" && turn.Generation == 2:
			_, revision, err := certs.ReadState(ctx, key, "certs")
			if err != nil {
				return err
			}
			next := *own
			next.Inputs, next.Facts, next.UpdatedAt = "2", []state.Fact{late}, late.Time
			if _, err := certs.WriteState(ctx, key, "certs", &next, revision); err != nil {
				return err
			}
			return errors.New("the turn ends before it writes by itself")
		}
		return nil
	}})
	portal, operator := s.Connect(t, events.UserPortal, ""), s.Connect(t, events.UserOperator, "")
	told := func(what string) func() bool {
		return func() bool {
			subject := key.FactSubject("certs", what)
			return subjects(t, operator, subject)[subject] == 1
		}
	}
	apply(t, portal, key, "1")
	natstest.Eventually(t, "the first fact", told(event.Issued))
	apply(t, portal, key, "2")
	natstest.Eventually(t, "the fact of the late write", told(event.Rotated))
}

// A fact that the stream has dropped for its age isn't owed: told again at each restart, it would be taken for news.
func TestFactsOlderThanTheStreamAreNotTold(t *testing.T) {
	t.Parallel()
	s, key := natstest.Start(t), events.Tenant("default", "demo")
	in, certs := s.Connect(t, "intake", ""), s.Connect(t, "certs", "")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	spec := &state.State{UID: "u", Generation: 1, Data: event.Marshal(state.Tenant{Namespace: "default", Name: "demo"})}
	if _, err := in.WriteState(t.Context(), key, events.KeySpec, spec, 0); err != nil {
		t.Fatal(err)
	}
	fact := func(what string, age time.Duration) state.Fact {
		return state.Fact{ID: what, What: what, Time: time.Now().Add(-age), Data: event.Marshal(event.CertsIssued{})}
	}
	own := &state.State{UID: "u", Generation: 1, Step: event.Issued, Facts: []state.Fact{
		fact(event.Issued, events.FactsKept+time.Hour), fact(event.Rotated, events.FactsKept-48*time.Hour),
	}}
	if _, err := certs.WriteState(t.Context(), key, "certs", own, 0); err != nil {
		t.Fatal(err)
	}
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
	got := subjects(t, s.Connect(t, events.UserOperator, ""), "stoker.fact.>")
	if len(got) != 1 || got[key.FactSubject("certs", event.Rotated)] != 1 {
		t.Errorf("facts on the stream: %v", got)
	}
}

// A tenant that was made again owes its own facts, whatever the clock said that told those of the one before: it may have been ahead.
func TestAFactIsOwedThoughThatOfAnEarlierTenantIsLaterByItsClock(t *testing.T) {
	t.Parallel()
	s, key := natstest.Start(t), events.Tenant("default", "demo")
	in, certs := s.Connect(t, "intake", ""), s.Connect(t, "certs", "")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	spec := &state.State{UID: "new", Generation: 1, Data: event.Marshal(state.Tenant{Namespace: "default", Name: "demo"})}
	if _, err := in.WriteState(t.Context(), key, events.KeySpec, spec, 0); err != nil {
		t.Fatal(err)
	}
	fact := func(uid string, at time.Time) state.Fact {
		return state.Fact{ID: uid, What: event.Issued, Time: at, Data: event.Marshal(event.CertsIssued{About: event.About{UID: uid}})}
	}
	subject := key.FactSubject("certs", event.Issued)
	ahead := certs.FactEvent(key, 7, "", fact("old", time.Now().Add(24*time.Hour)))
	natstest.Publish(t, certs, subject, ahead)
	own := &state.State{UID: "new", Generation: 1, Step: event.Issued, Facts: []state.Fact{fact("new", time.Now())}}
	if _, err := certs.WriteState(t.Context(), key, "certs", own, 0); err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{}, 1)
	run(t, &loop.Loop{
		Bus: certs, Service: "certs",
		Handle: func(context.Context, *loop.Turn) error {
			select {
			case woken <- struct{}{}:
			default:
			}
			return nil
		},
		Watch: func(ctx context.Context, _ *partition.Held, wake loop.Waker) error {
			wake(key, loop.Wake{Kind: "found"})
			<-ctx.Done()
			return nil
		},
	})
	<-woken
	if got := subjects(t, s.Connect(t, events.UserOperator, ""), subject)[subject]; got != 2 {
		t.Errorf("%d facts on the stream: that of the tenant that is there lacks", got)
	}
}
