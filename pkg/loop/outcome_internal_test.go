package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

// ends has turns of certs end as cases say, each of a tenant of its own.
type ends struct {
	t        *testing.T
	server   *natstest.Server
	loop     *Loop
	tenants  int
	operator *events.Bus
}

func newEnds(t *testing.T) *ends {
	s := natstest.Start(t)
	e := &ends{t: t, server: s, operator: s.Connect(t, events.UserOperator, "")}
	e.loop = &Loop{Bus: s.Connect(t, "certs", ""), Service: "certs"}
	e.loop.prepare(t.Context())
	return e
}

// turn is one of generation 2 of a new tenant with an own state, nil for none.
func (e *ends) turn(own *state.State) *Turn {
	e.t.Helper()
	e.tenants++
	turn := &Turn{
		Key: events.Tenant("default", fmt.Sprint("t", e.tenants)), UID: "u", Generation: 2, loop: e.loop,
		Tenant: &state.Tenant{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
	if err := e.server.Connect(e.t, "intake", "").CreateBucket(e.t.Context(), turn.Key); err != nil {
		e.t.Fatal(err)
	}
	if own != nil {
		revision, err := e.loop.Bus.WriteState(e.t.Context(), turn.Key, "certs", own, 0)
		if err != nil {
			e.t.Fatal(err)
		}
		turn.own, turn.revision = own, revision
	}
	return turn
}

// written is the state in the bucket with its revision, and what was told of the tenant.
func (e *ends) written(turn *Turn) (*state.State, uint64, []string) {
	e.t.Helper()
	own, revision, err := e.loop.Bus.ReadState(e.t.Context(), turn.Key, "certs")
	if err != nil && !errors.Is(err, events.ErrNotFound) {
		e.t.Fatal(err)
	}
	stream, err := e.operator.JetStream().Stream(e.t.Context(), events.StreamFacts)
	if err != nil {
		e.t.Fatal(err)
	}
	info, err := stream.Info(e.t.Context(), jetstream.WithSubjectFilter(turn.Key.FactSubject("certs", "*")))
	if err != nil {
		e.t.Fatal(err)
	}
	var told []string
	for subject := range info.State.Subjects {
		told = append(told, subject[strings.LastIndex(subject, ".")+1:])
	}
	slices.Sort(told)
	return own, revision, told
}

func TestWhichFailuresAreNotedAndTold(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	now := time.Now().UTC()
	long := now.Add(-time.Hour)
	stuck := state.Failure{Reason: "Stuck", Message: "no", Since: long}
	away := state.Failure{Reason: reason.Unavailable, Message: "127.0.0.1:1 refuses", Since: long}
	of := func(f *state.Failure, generation int64, at time.Time) *state.State {
		return &state.State{UID: "u", Generation: generation, Step: event.Issued, Failure: f, UpdatedAt: at}
	}
	change := func(f state.Failure, by func(*state.Failure)) state.Failure { by(&f); return f }
	for what, c := range map[string]struct {
		own         *state.State
		failure     state.Failure
		noted, told bool
		since       bool // it is as old as that of before
	}{
		"the first":                               {nil, stuck, true, true, false},
		"the first with a state":                  {of(nil, 2, long), stuck, true, true, false},
		"the same":                                {of(&stuck, 2, long), stuck, false, false, true},
		"the same, of another generation":         {of(&stuck, 1, long), stuck, true, true, true},
		"the same, which is tried again later":    {of(&stuck, 2, long), change(stuck, func(f *state.Failure) { f.RetryAt = now }), true, false, true},
		"the same for another reason":             {of(&stuck, 2, long), change(stuck, func(f *state.Failure) { f.Reason = "Lost" }), true, true, true},
		"the same in other words":                 {of(&stuck, 2, now), change(stuck, func(f *state.Failure) { f.Message = "never" }), true, true, true},
		"the same, now for people":                {of(&stuck, 2, long), change(stuck, func(f *state.Failure) { f.Permanent = true }), true, true, true},
		"an outage in other words":                {of(&away, 2, now), change(away, func(f *state.Failure) { f.Message = "127.0.0.1:2 refuses" }), false, false, true},
		"an outage in other words, an hour later": {of(&away, 2, long), change(away, func(f *state.Failure) { f.Message = "127.0.0.1:2 refuses" }), true, true, true},
		"an outage after another failure":         {of(&stuck, 2, now), away, true, true, true},
		"another failure after an outage":         {of(&away, 2, now), stuck, true, true, true},
	} {
		t.Run(what, func(t *testing.T) {
			turn := e.turn(c.own)
			before := turn.revision
			c.failure.Since = time.Time{}
			if err := turn.fail(t.Context(), c.failure); err != nil {
				t.Fatal(err)
			}
			own, revision, told := e.written(turn)
			if (revision > before) != c.noted {
				t.Errorf("noted: %v", revision > before)
			}
			if (len(told) > 0) != c.told {
				t.Errorf("told: %v", told)
			}
			if f := own.Failure; f.Since.Equal(long) != c.since || f.Since.IsZero() || c.noted && (f.Message != c.failure.Message || own.Generation != 2) {
				t.Errorf("%+v", own)
			}
			if c.own != nil && own.Step != event.Issued {
				t.Errorf("of the state before there is left: %+v", own)
			}
		})
	}
	t.Run("a message of any length is clipped", func(t *testing.T) {
		turn := e.turn(nil)
		if err := turn.fail(t.Context(), state.Failure{Reason: "Stuck", Message: strings.Repeat("no ", 10000)}); err != nil {
			t.Fatal(err)
		}
		if own, _, _ := e.written(turn); len(own.Failure.Message) > 10000 {
			t.Errorf("it has %d bytes", len(own.Failure.Message))
		}
	})
	t.Run("without a tenant there is nowhere to note it", func(t *testing.T) {
		gone := e.turn(nil)
		gone.Tenant = nil
		for _, turn := range []*Turn{gone, {Key: events.DataStore("main"), Tenant: &state.Tenant{}, loop: e.loop}} {
			if err := turn.fail(t.Context(), stuck); err != nil || turn.own != nil {
				t.Errorf("%s: %v, %+v", turn.Key, err, turn.own)
			}
		}
	})
	t.Run("a fact that is still owed is told, too, an older failure isn't", func(t *testing.T) {
		before := of(nil, 2, long)
		before.Facts = []state.Fact{{ID: "1", What: event.Failed, Time: long}, {ID: "2", What: event.Issued, Time: long}}
		turn := e.turn(before)
		turn.owed = true
		if err := turn.fail(t.Context(), stuck); err != nil {
			t.Fatal(err)
		}
		own, _, told := e.written(turn)
		if !slices.Equal(told, []string{event.Failed, event.Issued}) || len(own.Facts) != 2 || own.Facts[0].ID != "2" || turn.owed {
			t.Errorf("told %v of %+v", told, own.Facts)
		}
		if turn = e.turn(before); turn.fail(t.Context(), stuck) != nil {
			t.Fatal("not noted")
		}
		if own, _, told := e.written(turn); !slices.Equal(told, []string{event.Failed}) || len(own.Facts) != 1 {
			t.Errorf("what isn't owed is told: %v of %+v", told, own.Facts)
		}
	})
}

func TestAFailureBesideAnOutcomeIsToldWhenItIsAnother(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	long := time.Now().UTC().Add(-time.Hour)
	for what, c := range map[string]struct {
		before      *state.Failure
		generation  int64
		told, since bool
	}{
		"the first":                         {nil, 2, true, false},
		"the first, without a state":        {nil, 0, true, false},
		"the same in other words":           {&state.Failure{Reason: "Stuck", Permanent: true, Since: long}, 2, false, true},
		"one for another reason":            {&state.Failure{Reason: "Lost", Permanent: true, Since: long}, 2, true, true},
		"the same, which is now for people": {&state.Failure{Reason: "Stuck", Since: long}, 2, true, true},
		"the same, of another generation":   {&state.Failure{Reason: "Stuck", Permanent: true, Since: long}, 1, true, false},
	} {
		t.Run(what, func(t *testing.T) {
			var before *state.State
			if c.generation > 0 {
				before = &state.State{UID: "u", Generation: c.generation, Failure: c.before, UpdatedAt: long}
			}
			turn := e.turn(before)
			facts := []Tell{{What: event.Issued}}
			err := turn.Done(t.Context(), Outcome{
				Step: event.Issued, Inputs: "1", Data: map[string]int{"n": 1}, Facts: facts[:1:1], Failure: &state.Failure{Reason: "Stuck", Message: "no", Permanent: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			own, revision, told := e.written(turn)
			want := []string{event.Issued}
			if c.told {
				want = []string{event.Failed, event.Issued}
			}
			if f := own.Failure; !slices.Equal(told, want) || f == nil || f.Since.Equal(long) != c.since || f.Since.IsZero() || !f.Permanent || f.Message != "no" {
				t.Errorf("told %v, %+v", told, own.Failure)
			}
			if string(own.Data) != `{"n":1}` || own.Inputs != "1" || own.Step != event.Issued || turn.Own().Inputs != "1" || revision != turn.revision {
				t.Errorf("%+v", own)
			}
			stream, err := e.operator.JetStream().Stream(t.Context(), events.StreamFacts)
			if err != nil {
				t.Fatal(err)
			}
			m, err := stream.GetLastMsgForSubject(t.Context(), turn.Key.FactSubject("certs", event.Issued))
			if err != nil || m.Header.Get("ce-traceparent") != turn.Tenant.TraceParent {
				t.Errorf("the trace is not that of the command: %v, %v", m, err)
			}
			if !c.told {
				return
			}
			var failed event.StepFailed
			m, err = stream.GetLastMsgForSubject(t.Context(), turn.Key.FactSubject("certs", event.Failed))
			if err != nil || json.Unmarshal(m.Data, &failed) != nil || failed.Reason != "Stuck" || failed.Message != "no" || failed.Retrying {
				t.Errorf("told is %+v, %v", failed, err)
			}
		})
	}
}

func TestWhatATurnWrites(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	now := time.Now().UTC()
	issued := func() *state.State {
		return &state.State{
			UID: "u", Generation: 2, Step: event.Issued, Inputs: "1", Data: []byte(`{"n":1}`), UpdatedAt: now,
			Facts: []state.Fact{{ID: "1", What: event.Issued, Time: now}},
		}
	}
	t.Run("nothing, when the state is as it was", func(t *testing.T) {
		turn := e.turn(issued())
		before := turn.revision
		if err := turn.Done(t.Context(), Outcome{Step: event.Issued, Inputs: "1", Data: map[string]int{"n": 1}}); err != nil {
			t.Fatal(err)
		}
		if own, revision, told := e.written(turn); revision != before || len(told) > 0 || len(own.Facts) != 1 {
			t.Errorf("revision %d, was %d; told %v", revision, before, told)
		}
	})
	t.Run("its facts, though the state is as it was", func(t *testing.T) {
		turn := e.turn(issued())
		o := Outcome{Step: event.Issued, Inputs: "1", Data: map[string]int{"n": 1}, Facts: []Tell{{What: event.Rotated}}}
		if err := turn.Done(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if _, _, told := e.written(turn); !slices.Equal(told, []string{event.Rotated}) {
			t.Errorf("told %v", told)
		}
	})
	t.Run("what it waits for, beside what was there, and no failure", func(t *testing.T) {
		was := issued()
		was.Generation, was.Failure = 1, &state.Failure{Reason: "Stuck"}
		turn := e.turn(was)
		if err := turn.Wait(t.Context(), state.Wait{On: "workload", Reason: "Endpoint", Text: "an address"}); err != nil {
			t.Fatal(err)
		}
		own, _, told := e.written(turn)
		if own.Wait.On != "workload" || own.Generation != 2 || own.Failure != nil || own.Inputs != "1" || len(own.Facts) != 1 || len(told) > 0 {
			t.Errorf("%+v, told %v", own, told)
		}
		if turn = e.turn(nil); turn.Wait(t.Context(), state.Wait{On: "workload"}) != nil {
			t.Fatal("not written")
		}
		if own, _, _ := e.written(turn); own.UID != "u" || own.Wait.On != "workload" || own.UpdatedAt.IsZero() {
			t.Errorf("without a state before: %+v", own)
		}
	})
	t.Run("a later time than before, though the clock that wrote then was ahead", func(t *testing.T) {
		was := issued()
		was.UpdatedAt = now.Add(time.Hour)
		turn := e.turn(was)
		if err := turn.Done(t.Context(), Outcome{Step: event.Issued, Inputs: "2"}); err != nil {
			t.Fatal(err)
		}
		if own, _, _ := e.written(turn); !own.UpdatedAt.After(was.UpdatedAt) || own.UpdatedAt.After(was.UpdatedAt.Add(time.Second)) {
			t.Errorf("%s after %s", own.UpdatedAt, was.UpdatedAt)
		}
	})
	t.Run("nothing, when another wrote meanwhile or it is fenced", func(t *testing.T) {
		turn := e.turn(issued())
		turn.revision--
		turn.notePublished()
		if err := turn.Done(t.Context(), Outcome{Step: event.Issued, Inputs: "2", Facts: []Tell{{What: event.Rotated}}}); !errors.Is(err, intent.ErrStale) {
			t.Errorf("overtaken it gets %v", err)
		}
		if turn.published() {
			t.Error("facts that may not have been written count as published")
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(e.loop.metrics.conflicts)
		families, err := registry.Gather()
		if err != nil || families[0].GetMetric()[0].GetCounter().GetValue() != 1 {
			t.Errorf("conflicts are counted: %v, %v", families, err)
		}
		turn.revision++
		held := fence.With(t.Context(), func() bool { return false })
		if err := turn.Done(held, Outcome{Step: event.Issued, Inputs: "2"}); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("fenced it gets %v", err)
		}
		if own, _, told := e.written(turn); own.Inputs != "1" || len(told) > 0 {
			t.Errorf("%+v, told %v", own, told)
		}
	})
	t.Run("facts that stay owed when they can't be published", func(t *testing.T) {
		e := &ends{t: t, server: e.server, operator: e.operator, tenants: 100}
		// With Stoker's own limits: what a user may not publish is never answered.
		e.loop = &Loop{Bus: natstest.ConnectWith(t, e.server.Config("certs", "")), Service: "certs"}
		e.loop.prepare(t.Context())
		turn := e.turn(issued())
		turn.notePublished()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := turn.Done(ctx, Outcome{Step: event.Issued, Inputs: "2", Facts: []Tell{{What: "no.fact"}}}); err == nil {
			t.Fatal("a fact that can't be told is told")
		}
		if own, _, _ := e.written(turn); !turn.owed || turn.published() || own.Inputs != "2" {
			t.Errorf("owed: %v, published: %v, %+v", turn.owed, turn.published(), own)
		}
	})
	t.Run("what says that its facts are published, when they are", func(t *testing.T) {
		for _, was := range []*state.State{nil, issued()} {
			turn := e.turn(was)
			if err := turn.Wait(t.Context(), state.Wait{On: "workload"}); err != nil {
				t.Fatal(err)
			}
			if turn.published() != (was == nil) {
				t.Errorf("of the state %+v: %v", was, turn.published())
			}
			if err := turn.Done(t.Context(), Outcome{Step: event.Issued, Inputs: "3", Facts: []Tell{{What: event.Issued}}}); err != nil {
				t.Fatal(err)
			}
			if !turn.published() || turn.owed {
				t.Error("facts that were published are owed")
			}
			if err := turn.Wait(t.Context(), state.Wait{On: "datastore"}); err != nil || !turn.published() {
				t.Errorf("after another write they are owed: %v", err)
			}
		}
	})
}
