package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// pausable makes of commands whose data is a state.Tenant what the real intake makes of objects.
func pausable(b *events.Bus) *loop.Loop {
	return &loop.Loop{Bus: b, Service: "intake", Commands: true, Ensure: b.Provision, Handle: func(ctx context.Context, t *loop.Turn) error {
		for _, e := range t.Events {
			var tenant state.Tenant
			if e.Service != "" || json.Unmarshal(e.Data(), &tenant) != nil {
				continue
			}
			if err := t.Adopt(ctx, "uid-"+t.Key.Name, 1); err != nil {
				return err
			}
			resumed := t.Tenant != nil && t.Tenant.Paused && !tenant.Paused
			o := loop.Outcome{Step: event.Accepted, Inputs: e.ID(), Data: tenant}
			o.Facts = []loop.Tell{{What: event.Accepted, Data: event.IntakeAccepted{About: t.About(), Resumed: resumed}}}
			if tenant.Deleting {
				o.Facts = []loop.Tell{{What: event.Deleting, Data: event.IntakeDeleting{About: t.About()}}}
			}
			if err := t.Done(ctx, o); err != nil {
				return err
			}
			t.Tenant = &tenant
		}
		return nil
	}}
}

// want publishes what a tenant is to be.
func want(t *testing.T, portal *events.Bus, key events.Key, tenant state.Tenant) {
	t.Helper()
	e := portal.NewEvent(key, fmt.Sprint("want-", time.Now().UnixNano()), event.TenantApply, tenant, time.Now())
	natstest.Publish(t, portal, key.CommandSubject(), e)
}

// witness notes what a service's handler and its Paused are called with.
type witness struct {
	mu     sync.Mutex
	turns  map[events.Key][]string // events and reasons of each turn of the handler
	passed map[events.Key]int      // calls of Paused
	wake   loop.Waker
	handle loop.Handler // what the service does; may be nil
}

func (w *witness) loop(b *events.Bus, service string) *loop.Loop {
	w.turns, w.passed = map[events.Key][]string{}, map[events.Key]int{}
	return &loop.Loop{
		Bus: b, Service: service,
		Handle: func(ctx context.Context, t *loop.Turn) error {
			var saw []string
			for _, e := range t.Events {
				saw = append(saw, e.Service+"."+e.What)
			}
			w.mu.Lock()
			for _, wake := range t.Wakes {
				saw = append(saw, wake.Kind)
			}
			w.turns[t.Key] = append(w.turns[t.Key], fmt.Sprint(saw))
			w.mu.Unlock()
			if w.handle != nil {
				return w.handle(ctx, t)
			}
			return nil
		},
		Paused: func(turn *loop.Turn) {
			key := turn.Key
			w.mu.Lock()
			defer w.mu.Unlock()
			w.passed[key]++
		},
		Watch: func(ctx context.Context, _ *partition.Held, wake loop.Waker) error {
			w.mu.Lock()
			w.wake = wake
			w.mu.Unlock()
			<-ctx.Done()
			return nil
		},
	}
}

func (w *witness) saw(key events.Key) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.turns[key])
}

func (w *witness) count(key events.Key) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passed[key]
}

// passes waits until one more turn has passed a key because it is paused, which cause leads to.
func (w *witness) passes(t *testing.T, key events.Key, cause func()) {
	t.Helper()
	n := w.count(key)
	cause()
	natstest.Eventually(t, key.String()+" to be passed over", func() bool { return w.count(key) > n })
}

func (w *witness) wakes(t *testing.T, key events.Key, reason string) {
	t.Helper()
	natstest.Eventually(t, "the watch to run", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.wake != nil })
	w.mu.Lock()
	wake := w.wake
	w.mu.Unlock()
	wake(key, loop.Wake{Kind: reason})
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, pausable(s.Connect(t, "intake", "")))
	portal := s.Connect(t, events.UserPortal, "")
	tenant := func(n string) events.Key { return events.Tenant("default", n) }
	const accepted, resumed = "[intake.accepted]", "[intake.accepted certs.due]"
	paused := state.Tenant{Paused: true}

	t.Run("while it lasts nothing reaches the service, and at its end everything is due", func(t *testing.T) {
		w := &witness{}
		stop := run(t, w.loop(s.Connect(t, "certs", ""), "certs"))
		defer stop()
		key := tenant("lasts")
		want(t, portal, key, state.Tenant{})
		natstest.Eventually(t, "the first turn", func() bool { return len(w.saw(key)) == 1 })
		w.passes(t, key, func() { want(t, portal, key, paused) })
		w.passes(t, key, func() { w.wakes(t, key, "drift") })
		w.passes(t, key, func() { want(t, portal, key, state.Tenant{Paused: true, Labels: map[string]string{"a": "b"}}) })
		want(t, portal, key, state.Tenant{})
		natstest.Eventually(t, "the turn after the pause", func() bool { return len(w.saw(key)) == 2 })
		want(t, portal, key, state.Tenant{Labels: map[string]string{"a": "c"}})
		natstest.Eventually(t, "one more", func() bool { return len(w.saw(key)) == 3 })
		if got := w.saw(key); !slices.Equal(got, []string{accepted, resumed, accepted}) {
			t.Errorf("the handler saw %q", got)
		}
	})

	t.Run("one that another management cluster may take over is left alone by all but datastore", func(t *testing.T) {
		w, d := &witness{}, &witness{}
		stop := run(t, w.loop(s.Connect(t, "addons", ""), "addons"))
		defer stop()
		stopDatastore := run(t, d.loop(s.Connect(t, "datastore", ""), "datastore"))
		defer stopDatastore()
		key := tenant("goes")
		w.passes(t, key, func() { want(t, portal, key, state.Tenant{Transfer: "x"}) })
		natstest.Eventually(t, "datastore's turn", func() bool { return len(d.saw(key)) == 1 })
		if len(w.saw(key)) > 0 || d.count(key) > 0 {
			t.Errorf("addons saw %q", w.saw(key))
		}
	})

	t.Run("it outlives the replica: whoever works on the tenant at its end looks at everything", func(t *testing.T) {
		a, b := &witness{}, &witness{}
		stop := run(t, a.loop(s.Connect(t, "certs", "a"), "certs"))
		key := tenant("moves")
		want(t, portal, key, state.Tenant{})
		natstest.Eventually(t, "the first turn", func() bool { return len(a.saw(key)) == 1 })
		a.passes(t, key, func() { want(t, portal, key, paused) })
		stop()
		stop = run(t, b.loop(s.Connect(t, "certs", "b"), "certs"))
		defer stop()
		want(t, portal, key, state.Tenant{})
		natstest.Eventually(t, "the turn after the pause", func() bool { return len(b.saw(key)) == 1 })
		if a, b := a.saw(key), b.saw(key); !slices.Equal(a, []string{accepted}) || !slices.Equal(b, []string{resumed}) {
			t.Errorf("before the move %q, after it %q", a, b)
		}
	})

	t.Run("a step that fails is tried no more until it ends", func(t *testing.T) {
		w := &witness{handle: func(context.Context, *loop.Turn) error { return &intent.Unavailable{Err: errors.New("away")} }}
		stop := run(t, w.loop(s.Connect(t, "certs", ""), "certs"))
		defer stop()
		key := tenant("fails")
		want(t, portal, key, state.Tenant{})
		natstest.Eventually(t, "a second try", func() bool { return len(w.saw(key)) >= 2 })
		w.passes(t, key, func() { want(t, portal, key, paused) })
		tries := len(w.saw(key))
		w.passes(t, key, func() { w.wakes(t, key, "once more") })
		if n := len(w.saw(key)); n != tries {
			t.Errorf("tried %d times more", n-tries)
		}
		want(t, portal, key, state.Tenant{})
		natstest.Eventually(t, "another try", func() bool { return len(w.saw(key)) > tries })
	})

	t.Run("status goes on", func(t *testing.T) {
		w := &witness{}
		stop := run(t, w.loop(s.Connect(t, "status", ""), "status"))
		defer stop()
		key := tenant("told")
		want(t, portal, key, paused)
		natstest.Eventually(t, "its turn", func() bool { return len(w.saw(key)) == 1 })
		want(t, portal, key, state.Tenant{})
		natstest.Eventually(t, "another", func() bool { return len(w.saw(key)) == 2 })
		if got := w.saw(key); !slices.Equal(got, []string{accepted, accepted}) {
			t.Errorf("the handler saw %q", got)
		}
	})

	t.Run("so does capi, which no fact of a pause wakes", func(t *testing.T) {
		w, intake := &witness{}, s.Connect(t, "intake", "b")
		key := tenant("mirrored")
		want(t, portal, key, paused)
		natstest.Eventually(t, "the pause", func() bool { _, err := intake.State(t.Context(), key, "intake"); return err == nil })
		stop := run(t, w.loop(s.Connect(t, "capi", ""), "capi"))
		defer stop()
		natstest.Eventually(t, "its turn", func() bool { w.wakes(t, key, "watched"); return len(w.saw(key)) > 0 })
		if w.count(key) > 0 {
			t.Error("the tenant was passed over")
		}
	})
}

// A deletion goes from service to service by facts, and a pause makes one of them pass.
func TestADeletionGoesOnAfterAPause(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, pausable(s.Connect(t, "intake", "")))
	portal, operator := s.Connect(t, events.UserPortal, ""), s.Connect(t, events.UserOperator, "")
	key := events.Tenant("default", "demo")
	told := func(service, what string) uint64 {
		subject := key.FactSubject(service, what)
		return subjects(t, operator, subject)[subject]
	}
	// Each removes what it made once the one before it has, as the real ones do.
	remover := func(before string) loop.Handler {
		return func(ctx context.Context, turn *loop.Turn) error {
			if turn.Tenant == nil || !turn.Tenant.Deleting || turn.Own() != nil && turn.Own().Step == event.Removed {
				return nil
			}
			if !slices.ContainsFunc(turn.Events, func(e loop.Event) bool { return e.Service+"."+e.What == before }) {
				return turn.Wait(ctx, state.Wait{Text: before})
			}
			return turn.Done(ctx, loop.Outcome{
				Step: event.Removed, Facts: []loop.Tell{{What: event.Removed, Data: event.Removals{About: turn.About(), Removed: map[string]int{before: 1}}}},
			})
		}
	}
	addons := &witness{handle: remover("intake.deleting")}
	run(t, addons.loop(s.Connect(t, "addons", ""), "addons"))
	want(t, portal, key, state.Tenant{})
	want(t, portal, key, state.Tenant{Deleting: true})
	natstest.Eventually(t, "addons to have removed", func() bool { return told("addons", event.Removed) == 1 })
	addons.passes(t, key, func() { want(t, portal, key, state.Tenant{Deleting: true, Paused: true}) })

	// The next one hears of it during the pause.
	workload := &witness{handle: remover("addons.removed")}
	stop := run(t, workload.loop(s.Connect(t, "workload", ""), "workload"))
	workload.wakes(t, key, "drift")
	natstest.Eventually(t, "workload has passed everything over", func() bool {
		c, err := operator.JetStream().Consumer(t.Context(), events.StreamFacts, fmt.Sprint("workload-", key.Partition()))
		return err == nil && c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0
	})
	if got := workload.saw(key); len(got) > 0 || workload.count(key) == 0 {
		t.Fatalf("workload's handler saw %q", got)
	}
	stop() // and restarts

	workload = &witness{handle: remover("addons.removed")}
	run(t, workload.loop(s.Connect(t, "workload", ""), "workload"))
	want(t, portal, key, state.Tenant{Deleting: true})
	natstest.Eventually(t, "workload to have removed", func() bool { return told("workload", event.Removed) == 1 })
	if n := told("addons", event.Removed); n != 2 {
		t.Errorf("addons told %d times that it has removed, want once more after the pause", n)
	}

	t.Run("who is told again that it is done changes nothing", func(t *testing.T) {
		before, err := operator.State(t.Context(), key, "workload")
		if err != nil {
			t.Fatal(err)
		}
		want(t, portal, key, state.Tenant{Deleting: true, Labels: map[string]string{"again": ""}})
		natstest.Eventually(t, "both to have told again", func() bool { return told("addons", event.Removed) == 3 && told("workload", event.Removed) == 2 })
		after, err := operator.State(t.Context(), key, "workload")
		if err != nil || !after.UpdatedAt.Equal(before.UpdatedAt) {
			t.Errorf("workload's state was written again, %v", err)
		}
	})
}
