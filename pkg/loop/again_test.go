package loop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestWhatWasGivenUpIsTriedAgainLessAndLess(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for failedFor, want := range map[time.Duration]time.Duration{
		0: 10 * time.Minute, 90 * time.Second: 10 * time.Minute, 20 * time.Minute: 20 * time.Minute, 100 * time.Minute: 100 * time.Minute,
		48 * time.Hour: 6 * time.Hour,
	} {
		least, most := time.Duration(1<<62), time.Duration(0)
		for range 1000 {
			after := tryAgainAfter(&state.State{Failure: &state.Failure{Since: now.Add(-failedFor)}}, now)
			least, most = min(least, after), max(most, after)
		}
		if least < want*9/10 || most > want*11/10 || most-least < want/10 {
			t.Errorf("after %s of failures: between %s and %s, want about %s", failedFor, least, most, want)
		}
	}
	if after := tryAgainAfter(nil, now); after < 9*time.Minute || after > 11*time.Minute {
		t.Errorf("without a state: %s", after)
	}
	if after := tryAgainAfter(&state.State{Step: event.Issued}, now); after < 9*time.Minute || after > 11*time.Minute {
		t.Errorf("with a state that says of no failure: %s", after)
	}
}

func TestATryThatCameWithNewsIsTriedAsOftenAsAny(t *testing.T) {
	again := Wake{Kind: wakeAgain}
	for what, c := range map[string]struct {
		w    work
		want bool
	}{
		"nothing else":       {work{wakes: []Wake{again}}, true},
		"an event with it":   {work{wakes: []Wake{again}, batch: []*delivery{{}}}, false},
		"another wake":       {work{wakes: []Wake{again, {Kind: "secret"}}}, false},
		"no wake of it":      {work{wakes: []Wake{{Kind: "secret"}}}, false},
		"an event":           {work{batch: []*delivery{{}}}, false},
		"nothing whatsoever": {work{}, false},
	} {
		if got := c.w.isAgain(); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestAFailureThatStandsIsLookedAtAgainWhenItSays(t *testing.T) {
	l, key := &Loop{alarms: &alarms{}}, events.Tenant("default", "demo")
	alarm := func() *alarm { return l.alarms.m[alarmOf{key, true}] }
	t.Cleanup(func() { l.alarms.off(alarmOf{key, true}) })
	now := time.Now()
	stands := &Turn{Key: key, own: &state.State{Failure: &state.Failure{RetryAt: now.Add(time.Hour)}}}
	l.noteDone(stands)
	if a := alarm(); a == nil || a.at.Sub(now) < 59*time.Minute || a.at.Sub(now) > 61*time.Minute {
		t.Fatalf("an hour from now: %+v", a)
	}
	for what, own := range map[string]*state.State{
		"the failure is over":              {},
		"no state":                         nil,
		"one that its service looks after": {Failure: &state.Failure{Reason: reason.StepFailed}},
	} {
		l.noteDone(stands)
		if l.noteDone(&Turn{Key: key, own: own}); alarm() != nil {
			t.Errorf("%s: it is tried again all the same", what)
		}
	}
	l.noteDone(&Turn{Key: key, own: &state.State{Failure: &state.Failure{RetryAt: now.Add(-time.Hour)}}})
	if a := alarm(); a == nil || a.at.Sub(now) < 9*time.Minute {
		t.Errorf("what is due long since isn't tried at once, for a turn has just been: %+v", a)
	}
}

// A clock that was a day ahead when a step was given up doesn't put its next try off for a day.
func TestAPauseThatAWrongClockWroteIsNoLongerThanAnyOther(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		24 * time.Hour: tryAgainLatest, 3 * time.Hour: 3 * time.Hour, -24 * time.Hour: tryAgainSoonest,
	} {
		if got := tryAgainIn(left); got != want {
			t.Errorf("with %s left: in %s, not %s", left, got, want)
		}
	}
}

// tenant runs a loop with a handler and has a tenant accepted, and returns a way to read the loop's state.
func tenant(t *testing.T, s *natstest.Server, key events.Key, handle Handler, also ...func(*Loop)) (own func() *state.State) {
	t.Helper()
	in := s.Connect(t, "intake", "")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	spec := &state.State{
		UID: "u", Generation: 1, Data: event.Marshal(state.Tenant{Namespace: key.Namespace, Name: key.Name}),
	}
	if _, err := in.WriteState(t.Context(), key, events.KeySpec, spec, 0); err != nil {
		t.Fatal(err)
	}
	l := &Loop{
		Bus: s.Connect(t, "certs", ""), Service: "certs", Handle: handle,
		againAfter: func(*state.State, time.Time) time.Duration { return time.Millisecond },
	}
	l.SetClock(NewClock())
	for _, set := range also {
		set(l)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	about := event.About{Namespace: key.Namespace, Name: key.Name, UID: "u", Generation: 1}
	if err := in.Tell(t.Context(), key, 1, "accepted", event.Accepted, event.IntakeAccepted{About: about}); err != nil {
		t.Fatal(err)
	}
	operator := s.Connect(t, events.UserOperator, "")
	return func() *state.State {
		st, err := operator.State(t.Context(), key, "certs")
		if err != nil && !errors.Is(err, events.ErrNotFound) {
			t.Fatal(err)
		}
		return st
	}
}

func TestWhatWasGivenUpIsTriedAgain(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		err    error
		reason string
	}{
		"what no retry could help":    {&intent.Permanent{Reason: reason.InvalidName, Message: "no"}, reason.InvalidName},
		"what failed again and again": {nil, reason.RetriesExhausted},
	} {
		t.Run(what, func(t *testing.T) {
			s, key := natstest.Start(t), events.Tenant("default", "demo")
			gaveUp, goOn, turns := make(chan struct{}), make(chan struct{}), 0
			own := tenant(t, s, key, func(ctx context.Context, turn *Turn) error {
				turns++
				switch {
				case c.err == nil && turns <= maxFailures:
					if turns < maxFailures { // a wake that is left would come before the other try
						turn.loop.wake(key, Wake{Kind: "hurry", Version: fmt.Sprint(turns)}) // else the pauses take a minute and a half
					}
					return errors.New("never seen")
				case c.err != nil && turns == 1:
					return c.err
				case len(turn.Events) != 1 || !turn.Due():
					t.Errorf("another try has events %v", turn.Events)
				}
				if turns < maxFailures+3 {
					close(gaveUp)
					<-goOn
					turns = maxFailures + 3
					if c.err == nil {
						return errors.New("never seen")
					}
					return c.err
				}
				return turn.Done(ctx, Outcome{Step: event.Issued})
			})
			<-gaveUp
			if st := own(); st == nil || st.Failure == nil || st.Failure.Reason != c.reason || st.Failure.RetryAt.IsZero() {
				t.Errorf("the state doesn't say when it is tried again: %+v", st)
			}
			close(goOn)
			natstest.Eventually(t, "the step succeeds at last", func() bool {
				st := own()
				return st != nil && st.Step == event.Issued && st.Failure == nil
			})
			dead, err := s.Connect(t, events.UserOperator, "").JetStream().Stream(t.Context(), events.StreamDead)
			if err != nil {
				t.Fatal(err)
			}
			info, err := dead.Info(t.Context(), jetstream.WithSubjectFilter(key.DeadSubject("certs")))
			if err != nil || info.State.Subjects[key.DeadSubject("certs")] != 1 {
				t.Errorf("dead letters: %v, %v", info.State.Subjects, err)
			}
		})
	}
}
