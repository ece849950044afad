package loop_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// seenEvents counts what a service was given of each event.
type seenEvents struct {
	mu    sync.Mutex
	count map[string]int // by service, id and fact
}

func (s *seenEvents) note(service string, t *loop.Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range t.Events {
		s.count[service+" "+e.ID()+" "+e.Service+"."+e.What]++
	}
}

func (s *seenEvents) of(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[what]
}

func TestAReplayedDeadLetterGoesOnceToWhoGaveItUp(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	intake := s.Connect(t, "intake", "")
	key := events.Tenant("default", "demo")
	seen := &seenEvents{count: map[string]int{}}
	run(t, &loop.Loop{Bus: s.Connect(t, "certs", ""), Service: "certs", Handle: func(_ context.Context, t *loop.Turn) error {
		seen.note("certs", t)
		if slices.ContainsFunc(t.Events, func(e loop.Event) bool { return strings.HasPrefix(e.ID(), "bad") }) {
			return &intent.Permanent{Reason: "Test", Message: "it can't be"}
		}
		return nil
	}})
	run(t, &loop.Loop{Bus: s.Connect(t, "workload", ""), Service: "workload", Handle: func(_ context.Context, t *loop.Turn) error {
		seen.note("workload", t)
		return nil
	}})
	tell := func(id string) {
		t.Helper()
		if err := intake.Tell(t.Context(), key, 1, id, event.Accepted, event.IntakeAccepted{}); err != nil {
			t.Fatal(err)
		}
	}
	letter := func(bury string) (d events.DeadLetter) {
		t.Helper()
		natstest.Eventually(t, "the dead letter "+bury, func() bool {
			letters, _, err := intake.DeadLetters(t.Context(), event.DeadFilter{Service: "certs"}, 0, 10)
			i := slices.IndexFunc(letters, func(d events.DeadLetter) bool { return d.ID == bury })
			if err == nil && i >= 0 {
				d = letters[i]
			}
			return i >= 0
		})
		return d
	}
	tell("bad")
	d := letter("bad")
	if d.Subject != key.FactSubject("intake", event.Accepted) || d.Reason != "Test" || d.Cause != "it can't be" ||
		d.Deliveries != 1 || d.Namespace != "default" {
		t.Errorf("%+v", d.DeadLetter)
	}

	var both errgroup.Group
	for range 2 {
		both.Go(func() error { return intake.ReplayDeadLetter(t.Context(), d) })
	}
	if err := both.Wait(); err != nil {
		t.Fatal(err)
	}
	// Given up again, it is another letter, about the same event.
	natstest.Eventually(t, "another letter", func() bool {
		letters, _, err := intake.DeadLetters(t.Context(), event.DeadFilter{}, 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Sequence != d.Sequence && letters[0].Subject == d.Subject
	})
	tell("good")
	natstest.Eventually(t, "both have come to what is told next", func() bool {
		return seen.of("certs good intake.accepted") == 1 && seen.of("workload good intake.accepted") == 1
	})
	if again, others := seen.of("certs bad intake.accepted"), seen.of("workload bad intake.accepted"); again != 2 || others != 1 {
		t.Errorf("certs was given the event %d times, not 2, and workload %d times, not 1", again, others)
	}
}
