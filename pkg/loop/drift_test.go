package loop

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestWhatKeepsDriftingIsPutRightAtABoundedRate(t *testing.T) {
	t.Parallel()
	s, edited, other := natstest.Start(t), events.Tenant("default", "demo"), events.Tenant("default", "other")
	const every = 200 * time.Millisecond // ten times that without a change is calm, and may not come of a busy machine
	var mu sync.Mutex
	var loop *Loop
	var first time.Time
	turns, seen, met, calm, others := 0, 0, false, false, make(chan struct{}, 1)
	own := tenant(t, s, edited, func(ctx context.Context, turn *Turn) error {
		mu.Lock()
		defer mu.Unlock()
		if turn.Key == other {
			others <- struct{}{}
			return nil
		}
		met = true
		if turn.Due() {
			calm = true
			return turn.Done(ctx, Outcome{Step: event.Issued})
		}
		if !turn.Woken("edited") {
			return turn.Done(ctx, Outcome{Step: event.Issued})
		}
		if turns++; turns == 1 {
			first = time.Now()
		}
		if len(turn.Wakes) != 1 {
			t.Errorf("%d wakes about one object", len(turn.Wakes))
		}
		_, _ = fmt.Sscan(turn.Wakes[0].Version, &seen)
		turn.Drifted("ConfigMap/coredns")
		return turn.Done(ctx, Outcome{Step: event.Issued})
	}, func(l *Loop) { l.driftEvery, loop = every, l })
	natstest.Eventually(t, "the first turn", func() bool { mu.Lock(); defer mu.Unlock(); return met })
	drifting := func() *drifts {
		loop.mu.Lock()
		defer loop.mu.Unlock()
		return loop.drifts[edited]
	}

	// An editor in a loop, until what he does is taken for that and for some time more.
	var edits atomic.Int64
	natstest.Eventually(t, "the state says that it drifts again and again", func() bool {
		for range 2 * driftBurst { // one after the other, because the budget grows in the pauses between two tries
			n := int(edits.Add(1))
			loop.wake(edited, Wake{Kind: "edited", Object: "ConfigMap/coredns", Version: fmt.Sprint(n)})
			natstest.Eventually(t, "the edit is put right", func() bool { mu.Lock(); defer mu.Unlock(); return seen >= n })
		}
		f := own().Failure
		return f != nil && f.Reason == reason.KeepsDrifting && strings.Contains(f.Message, "ConfigMap/coredns")
	})
	for range 500 {
		loop.wake(edited, Wake{Kind: "edited", Object: "ConfigMap/coredns", Version: fmt.Sprint(edits.Add(1))})
		loop.wake(other, Wake{Kind: "edited"})
		<-others
	}
	mu.Lock()
	most := driftBurst + int(time.Since(first)/every) + 1
	if turns > most {
		t.Errorf("%d turns for %d changes, more than %d", turns, edits.Load(), most)
	}
	mu.Unlock()
	natstest.Eventually(t, "the last change is put right", func() bool { mu.Lock(); defer mu.Unlock(); return seen == int(edits.Load()) })

	natstest.Eventually(t, "it is looked at once more, and the failure ends", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return calm && own().Failure == nil
	})
	if d := drifting(); d != nil {
		t.Errorf("its drifts are not forgotten")
	}
	failed, err := s.Connect(t, events.UserOperator, "").JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	subject := edited.FactSubject("certs", event.Failed)
	info, err := failed.Info(t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil || info.State.Subjects[subject] != 1 {
		t.Errorf("told: %v, %v", info.State.Subjects, err)
	}
}

// A service needn't say itself that something keeps drifting, and what else it does meanwhile doesn't end that.
func TestWhatKeepsDriftingIsInTheStateUntilItEnds(t *testing.T) {
	t.Parallel()
	s, key := natstest.Start(t), events.Tenant("default", "demo")
	var loop *Loop
	turns := make(chan bool, 100)
	own := tenant(t, s, key, func(ctx context.Context, turn *Turn) error {
		if turn.Woken("edited") {
			turn.Drifted("Deployment/demo")
		}
		err := turn.Done(ctx, Outcome{Step: event.Issued})
		turns <- err == nil
		return err
	}, func(l *Loop) { l.driftEvery, loop = time.Hour, l })
	<-turns
	for range driftBurst {
		if f := own().Failure; f != nil {
			t.Fatalf("too early: %+v", f)
		}
		loop.wake(key, Wake{Kind: "edited"})
		<-turns
	}
	about := event.About{Namespace: key.Namespace, Name: key.Name, UID: "u", Generation: 1}
	for _, id := range []string{"1", "2"} {
		f := own().Failure
		if f == nil || f.Reason != reason.KeepsDrifting || !strings.Contains(f.Message, "Deployment/demo") {
			t.Fatalf("failure before look %s is %+v", id, f)
		}
		if own().Failed() {
			t.Error("it counts as failed")
		}
		if err := s.Connect(t, "intake", "").Tell(t.Context(), key, 1, id, event.Checked, event.IntakeChecked{About: about}); err != nil {
			t.Fatal(err)
		}
		<-turns
	}
}
