package loop

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestAnEventProvesThatAStateIsNotTheLast(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	fact := func(service, what, uid string, generation int64, at time.Time) Event {
		e := ce.New()
		e.SetTime(at)
		e.DataEncoded = event.Marshal(event.About{Name: "demo", UID: uid, Generation: generation})
		return Event{Event: e, Service: service, What: what}
	}
	read := func(uid string, generation int64, at time.Time, deleting bool) *state.State {
		return &state.State{UID: uid, Generation: generation, UpdatedAt: at, Data: event.Marshal(state.Tenant{Deleting: deleting})}
	}
	for what, c := range map[string]struct {
		of     string
		state  *state.State
		events []Event
		want   bool
	}{
		"no event proves anything":                           {"certs", nil, nil, false},
		"a fact whose state is missing":                      {"certs", nil, []Event{fact("certs", event.Issued, "u", 1, now)}, true},
		"a fact of another service":                          {"certs", nil, []Event{fact("workload", event.Exposed, "u", 1, now)}, false},
		"a timer says nothing of the state":                  {"certs", nil, []Event{fact("certs", event.Due, "u", 1, now)}, false},
		"a fact of the state that was read":                  {"certs", read("u", 1, now, false), []Event{fact("certs", event.Issued, "u", 1, now)}, false},
		"a fact of a later write":                            {"certs", read("u", 1, now, false), []Event{fact("certs", event.Issued, "u", 1, now.Add(1))}, true},
		"a fact of a later generation":                       {"certs", read("u", 1, now, false), []Event{fact("certs", event.Issued, "u", 2, now)}, true},
		"a fact of an earlier write":                         {"certs", read("u", 1, now, false), []Event{fact("certs", event.Issued, "u", 1, now.Add(-1))}, false},
		"a fact of an earlier tenant":                        {"certs", read("u", 1, now, false), []Event{fact("certs", event.Issued, "old", 7, now.Add(-1))}, false},
		"a fact of the tenant after it":                      {"certs", read("old", 7, now, false), []Event{fact("certs", event.Issued, "u", 1, now.Add(1))}, true},
		"the spec is missing":                                {"intake", nil, []Event{fact("intake", event.Accepted, "u", 1, now)}, true},
		"the spec is missing, by another fact":               {"intake", nil, []Event{fact("certs", event.Issued, "u", 1, now)}, true},
		"the spec is missing, and that is told":              {"intake", nil, []Event{fact("certs", event.Removed, "u", 1, now), fact("intake", event.Removed, "u", 1, now)}, false},
		"the spec is there, and its end is told":             {"intake", read("u", 1, now, true), []Event{fact("intake", event.Removed, "u", 1, now.Add(1))}, true},
		"the spec is there again after its release was told": {"intake", read("u", 1, now, false), []Event{fact("intake", event.Released, "u", 1, now.Add(-1))}, false},
		"the spec of an earlier generation":                  {"intake", read("u", 1, now, false), []Event{fact("certs", event.Issued, "u", 2, now)}, true},
		"the spec of this generation":                        {"intake", read("u", 2, now, false), []Event{fact("certs", event.Issued, "u", 2, now.Add(1))}, false},
		"what was removed of a tenant that isn't to go": {
			"intake", read("u", 1, now, false), []Event{fact("workload", event.Removed, "u", 1, now.Add(1))}, true,
		},
		"what was removed of one that is": {"intake", read("u", 1, now, true), []Event{fact("workload", event.Removed, "u", 1, now.Add(1))}, false},
		"what was removed of an earlier tenant": {
			"intake", read("u", 1, now, false), []Event{fact("workload", event.Removed, "old", 9, now.Add(-1))}, false,
		},
		"the spec is missing, and its release is told":      {"intake", nil, []Event{fact("certs", event.Issued, "u", 1, now), fact("intake", event.Released, "u", 1, now)}, false},
		"the late word of an earlier tenant's end":          {"intake", read("u", 1, now, false), []Event{fact("intake", event.Removed, "old", 9, now.Add(1))}, false},
		"the end of a tenant proves nothing of a service":   {"certs", read("u", 1, now, false), []Event{fact("intake", event.Removed, "u", 1, now.Add(1))}, false},
		"a spec without a time, and its end is told":        {"intake", read("u", 1, time.Time{}, false), []Event{fact("intake", event.Removed, "u", 1, now)}, false},
		"a state without a time":                            {"certs", read("u", 1, time.Time{}, false), []Event{fact("certs", event.Issued, "u", 1, now)}, false},
		"a state without a time, and a fact of another UID": {"certs", read("old", 7, time.Time{}, false), []Event{fact("certs", event.Issued, "u", 1, now)}, false},
		"a spec without a time, and a fact of another UID":  {"intake", read("old", 7, time.Time{}, false), []Event{fact("certs", event.Issued, "u", 1, now)}, false},
		"a fact of the tenant after the spec's":             {"intake", read("old", 7, now, false), []Event{fact("certs", event.Issued, "u", 1, now.Add(1))}, true},
		"a fact of an earlier generation, told later":       {"certs", read("u", 2, now, false), []Event{fact("certs", event.Issued, "u", 1, now.Add(1))}, false},
		"the deletion was told after the spec was written":  {"intake", read("u", 1, now, false), []Event{fact("intake", event.Deleting, "u", 1, now.Add(1))}, true},
		"a failure was told after the spec was written":     {"intake", read("u", 1, now, false), []Event{fact("intake", event.Failed, "u", 1, now.Add(1))}, true},
		"the daily look is told without the spec":           {"intake", read("u", 1, now, false), []Event{fact("intake", event.Checked, "u", 1, now.Add(1))}, false},
		"a command": {"intake", nil, []Event{fact("", "", "u", 1, now)}, false},
	} {
		t.Run(what, func(t *testing.T) {
			if got := (&Turn{Events: c.events}).newer(c.of, c.state); (got != nil) != c.want {
				t.Errorf("newer is %v", got)
			}
		})
	}
}

func TestAStateThatIsNotThereIsNone(t *testing.T) {
	t.Parallel()
	s, key := natstest.Start(t), events.Tenant("default", "demo")
	in, put := lagging(t, s, key)
	put(1, time.Now().UTC(), false)
	l := &Loop{Bus: s.Connect(t, "workload", ""), Service: "workload"}
	l.prepare(t.Context())
	for _, first := range []bool{true, false} {
		turn := &Turn{Key: key, UID: "u", loop: l, first: first}
		if _, _, err := turn.readState(t.Context(), "certs"); !errors.Is(err, events.ErrNotFound) {
			t.Errorf("first meeting %v: read %v", first, err)
		}
		if st, err := turn.Read(t.Context(), "certs", nil); st != nil || err != nil {
			t.Errorf("first meeting %v: %+v, %v", first, st, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := turn.readState(ended, "intake"); err == nil || errors.Is(err, events.ErrNotFound) {
			t.Errorf("first meeting %v: without an answer: %v", first, err)
		}
	}
	_ = in
}

// lagging is a bucket whose spec says less than the facts told of it, and which, if so wanted, answers no direct question.
func lagging(t *testing.T, s *natstest.Server, key events.Key) (in *events.Bus, put func(generation int64, at time.Time, deleting bool)) {
	t.Helper()
	in = s.Connect(t, "intake", "")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	return in, func(generation int64, at time.Time, deleting bool) {
		t.Helper()
		data, err := json.Marshal(state.State{
			UID: "u", Generation: generation, UpdatedAt: at,
			Data: event.Marshal(state.Tenant{Namespace: key.Namespace, Name: key.Name, Deleting: deleting}),
		})
		if err != nil {
			t.Fatal(err)
		}
		m := nats.NewMsg("$KV." + key.Bucket() + ".spec")
		m.Data = data
		if _, err := in.JetStream().PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsReadBehindAnEvent(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	certs := s.Connect(t, "certs", "")
	l := &Loop{Bus: certs, Service: "certs"}
	l.prepare(t.Context())
	for what, c := range map[string]struct {
		answersDirect bool
		event         Event
		age           time.Duration
		want          int64 // the generation that is read, 0 for: read again
	}{
		"the leader knows what the server that answers doesn't":         {true, Event{Service: "intake", What: event.Accepted}, 0, 2},
		"a server that says nothing":                                    {false, Event{Service: "intake", What: event.Accepted}, 0, 2},
		"the leader is behind, too, and is asked again":                 {true, Event{Service: "certs", What: event.Issued}, -8 * time.Second, 0},
		"the leader never heard of it, so the fact tells of what isn't": {true, Event{Service: "certs", What: event.Issued}, time.Hour, 2},
	} {
		t.Run(what, func(t *testing.T) {
			key := events.Tenant("default", events.Token(events.ID(what)))
			in, put := lagging(t, s, key)
			now := time.Now().UTC().Add(-c.age)
			put(2, now, false)
			if !c.answersDirect {
				st, err := in.JetStream().Stream(t.Context(), "KV_"+key.Bucket())
				if err != nil {
					t.Fatal(err)
				}
				cfg := st.CachedInfo().Config
				cfg.AllowDirect = false
				if _, err := in.JetStream().UpdateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			about := event.About{Name: key.Name, UID: "u", Generation: 2}
			if c.event.Service == "certs" {
				about.Generation = 3
			}
			c.event.Event = in.NewEvent(key, "1", event.FactType(c.event.Service, c.event.What), about, now)
			turn := &Turn{Key: key, Events: []Event{c.event}, loop: l, first: !c.answersDirect}
			st, _, err := turn.readState(t.Context(), "intake")
			switch {
			case c.want == 0 && (!errors.Is(err, intent.ErrStale) || intent.Of(err) != intent.Reread):
				t.Errorf("read %+v, %v", st, err)
			case c.want != 0 && (err != nil || st.Generation != c.want):
				t.Errorf("read %+v, %v", st, err)
			}
		})
	}
}

// A deletion whose first step is done isn't taken for a tenant that lives on, though the spec that was read says so.
func TestARemovalIsNotHandledBeforeItsDeletion(t *testing.T) {
	t.Parallel()
	s, key := natstest.Start(t), events.Tenant("default", "demo")
	in, put := lagging(t, s, key)
	put(1, time.Now().UTC().Add(-time.Minute), false)
	workload := s.Connect(t, "workload", "")
	about := event.About{Namespace: "default", Name: "demo", UID: "u", Generation: 1}
	told := time.Now().UTC().Add(8 * time.Second) // so that the state may be on its way for almost twice as long
	removed := workload.NewEvent(key, "1", event.FactType("workload", event.Removed), event.Removals{About: about}, told)
	natstest.Publish(t, workload, key.FactSubject("workload", event.Removed), removed)
	asked := make(chan string, 100)
	cfg := s.Config("datastore", "")
	cfg.Log = natstest.LogTo(func(message string) {
		if message == "state is behind an event, reading it again" {
			asked <- message
		}
	})
	bus, err := events.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	handled := make(chan bool, 10)
	l := &Loop{Bus: bus, Service: "datastore", Handle: func(_ context.Context, turn *Turn) error {
		handled <- turn.Tenant.Deleting
		return nil
	}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	natstest.Receive(t, "the state is read again", asked)
	put(1, told, true)
	if !natstest.Receive(t, "the removal is handled", handled) {
		t.Error("the removal was handled with a spec from before the deletion")
	}
	if st, err := s.Connect(t, events.UserOperator, "").State(t.Context(), key, "datastore"); err == nil {
		t.Errorf("reading again counts as a failure: %+v", st.Failure)
	}
	_ = in
}
