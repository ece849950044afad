package loop_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// ending is an intake whose commands end as their ids say, and the portal that sends them.
type ending struct {
	bus, portal, operator *events.Bus
	key                   events.Key
	inbox                 string
	answers               chan *nats.Msg

	mu    sync.Mutex
	stale int // how often a state was written by another before the command's end
	early int // answers noted although it was
}

func startEnding(t *testing.T) *ending {
	t.Helper()
	s := natstest.Start(t)
	e := &ending{
		bus: s.Connect(t, "intake", ""), portal: s.Connect(t, events.UserPortal, ""), operator: s.Connect(t, events.UserOperator, ""),
		key: events.Tenant("default", "demo"), answers: make(chan *nats.Msg, 8),
	}
	e.inbox = e.key.NewAnswerSubject()
	sub, err := e.portal.Conn().ChanSubscribe(e.inbox, e.answers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := e.portal.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	run(t, &loop.Loop{Bus: e.bus, Service: "intake", Commands: true, Ensure: e.bus.Provision, Handle: e.handle})
	return e
}

func (x *ending) handle(ctx context.Context, t *loop.Turn) error {
	for _, e := range t.Events {
		o := loop.CommandOutcome{What: event.Rejected, Data: event.IntakeRejected{Command: e.ID()}, FactID: events.ID("rejected", e.ID()), Refused: "not today"}
		if strings.HasPrefix(e.ID(), "accepted") {
			if err := t.Adopt(ctx, "uid", 1); err != nil {
				return err
			}
			accepted := event.IntakeAccepted{About: t.About(), Command: e.ID()}
			o = loop.CommandOutcome{
				What: event.Accepted, Data: accepted, Request: events.Fingerprint(t.Key, e.Event),
				State: &loop.Outcome{
					Step: event.Accepted, Inputs: e.ID(), Data: state.Tenant{}, Facts: []loop.Tell{{What: event.Accepted, Data: accepted}},
				},
			}
		}
		if e.ID() == "accepted by two" && x.writeFirst(ctx, t) {
			err := t.EndCommand(ctx, e, o)
			x.lookForNote(ctx, e)
			return err
		}
		if err := t.EndCommand(ctx, e, o); err != nil {
			return err
		}
	}
	return nil
}

// writeFirst writes the state as another replica would, once.
func (x *ending) writeFirst(ctx context.Context, t *loop.Turn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stale > 0 {
		return false
	}
	_, revision, err := x.bus.ReadState(ctx, t.Key, events.KeySpec)
	if err != nil {
		return false
	}
	other := &state.State{UID: "uid", Generation: 1, Inputs: "another", Data: event.Marshal(state.Tenant{})}
	if _, err := x.bus.WriteState(ctx, t.Key, events.KeySpec, other, revision); err != nil {
		return false
	}
	x.stale++
	return true
}

func (x *ending) lookForNote(ctx context.Context, e loop.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a, err := x.bus.Answered(ctx, x.key, e.Source(), e.ID()); err != nil || a != nil {
		x.early++
	}
}

// send sends a command and returns what its sender is answered, empty without an inbox.
func (x *ending) send(t *testing.T, id, inbox string) string {
	t.Helper()
	e := x.portal.NewEvent(x.key, id, event.TenantApply, map[string]string{}, time.Now())
	if inbox != "" {
		e.SetExtension(events.ExtReplyTo, inbox)
	}
	natstest.Publish(t, x.portal, x.key.CommandSubject(), e)
	if inbox == "" {
		return ""
	}
	m := natstest.Receive(t, "the command is answered", x.answers)
	answer, err := events.Decode(m.Header, m.Data)
	if err != nil || answer.ID() != events.AnswerID(e) {
		t.Errorf("%v %v", answer, err)
	}
	return answer.Type()
}

func (x *ending) noted(t *testing.T, id string) *events.Answer {
	t.Helper()
	a, err := x.bus.Answered(t.Context(), x.key, "/stoker/"+events.UserPortal, id)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// dead returns the header of the dead letter stored last, nil for none.
func (x *ending) dead(t *testing.T) nats.Header {
	t.Helper()
	st, err := x.operator.JetStream().Stream(t.Context(), events.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.GetLastMsgForSubject(t.Context(), x.key.DeadSubject("intake"))
	if err != nil {
		return nil
	}
	return m.Header
}

func TestEndCommand(t *testing.T) {
	t.Parallel()
	x := startEnding(t)
	t.Run("one that was carried out is a state, a fact, a note and an answer", func(t *testing.T) {
		if typ := x.send(t, "accepted", x.inbox); typ != event.FactType("intake", event.Accepted) {
			t.Error(typ)
		}
		// The answer is the last, so all else is there by now.
		if st, err := x.operator.State(t.Context(), x.key, events.KeySpec); err != nil || st.Inputs != "accepted" {
			t.Errorf("%+v %v", st, err)
		}
		subject := x.key.FactSubject("intake", event.Accepted)
		if n := subjects(t, x.operator, subject)[subject]; n != 1 {
			t.Errorf("%d facts", n)
		}
		if a := x.noted(t, "accepted"); a == nil || a.What != event.Accepted || a.Request == "" {
			t.Errorf("%+v", a)
		}
	})
	t.Run("when another has written the state, nothing is noted or told before that is put right", func(t *testing.T) {
		x.send(t, "accepted by two", x.inbox)
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.stale != 1 || x.early != 0 || x.noted(t, "accepted by two") == nil {
			t.Errorf("written by another %d times, noted before %d times", x.stale, x.early)
		}
	})
	t.Run("one that was refused is a fact and an answer, and looked at anew when it comes again", func(t *testing.T) {
		if typ := x.send(t, "refused", x.inbox); typ != event.FactType("intake", event.Rejected) {
			t.Error(typ)
		}
		subject := x.key.FactSubject("intake", event.Rejected)
		if n := subjects(t, x.operator, subject)[subject]; n != 1 || x.noted(t, "refused") != nil || x.dead(t) != nil {
			t.Errorf("%d facts, dead letter %v", n, x.dead(t))
		}
	})
	t.Run("one whose sender can't be told becomes a dead letter, with the cause", func(t *testing.T) {
		x.send(t, "refused silently", "")
		natstest.Eventually(t, "the dead letter", func() bool {
			h := x.dead(t)
			return h != nil && h.Get("ce-id") == "refused silently" && h.Get("Stoker-Reason") == "Rejected" && h.Get("Stoker-Cause") == "not today"
		})
		if x.noted(t, "refused silently") != nil {
			t.Error("its answer is noted")
		}
	})
}
