package loop

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestWhichTurnsAreAboutCommandsAlone(t *testing.T) {
	command, fact := Event{}, Event{Service: "certs", What: "issued"}
	for what, c := range map[string]struct {
		turn Turn
		want bool
	}{
		"commands":             {Turn{Events: []Event{command, command}}, true},
		"a command and a fact": {Turn{Events: []Event{command, fact}}, false},
		"a fact":               {Turn{Events: []Event{fact}}, false},
		"a command and a wake": {Turn{Events: []Event{command}, Wakes: []Wake{{Kind: "seen"}}}, false},
		"a wake":               {Turn{Wakes: []Wake{{Kind: "seen"}}}, false},
		"nothing":              {Turn{}, false},
	} {
		if got := c.turn.commandsOnly(); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestAFactNamesItsObjectAsTheAPIDoes(t *testing.T) {
	for _, c := range []struct {
		key             events.Key
		namespace, name string
	}{
		{events.Tenant("acme", "demo"), "acme", "demo"},
		{events.DataStore("main"), "", "main"},
	} {
		turn := Turn{Key: c.key, UID: "u", Generation: 3}
		if a := turn.About(); a.Namespace != c.namespace || a.Name != c.name || a.UID != "u" || a.Generation != 3 {
			t.Errorf("%s: %+v", c.key, a)
		}
	}
}

func TestDataOfTheOwnStateThatCanNotBeReadIsNone(t *testing.T) {
	type data struct{ A, B string }
	for what, c := range map[string]struct {
		own        *state.State
		want       data
		unreadable bool
	}{
		"no state":              {nil, data{A: "before"}, false},
		"a state without data":  {&state.State{}, data{A: "before"}, false},
		"data":                  {&state.State{Data: []byte(`{"A":"a"}`)}, data{A: "a"}, false},
		"data of another shape": {&state.State{Data: []byte(`{"A":"a","B":1}`)}, data{}, true},
	} {
		turn, got := Turn{own: c.own, loop: &Loop{log: slog.New(slog.DiscardHandler)}}, data{A: "before"}
		if err := turn.OwnData(&got); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		if turn.Unreadable() != c.unreadable || turn.unreadable && turn.Own() != nil {
			t.Errorf("%s: unreadable is %v, own %v", what, turn.Unreadable(), turn.Own())
		}
	}
}

// reads is an [ends] whose tenants have specs.
type reads struct {
	*ends
	intake *Loop
}

func newReads(t *testing.T) *reads {
	r := &reads{ends: newEnds(t)}
	r.intake = &Loop{Bus: r.server.Connect(t, "intake", ""), Service: "intake"}
	r.intake.prepare(t.Context())
	return r
}

// tenant is a new one with an own state of certs and a spec, each nil for none.
func (r *reads) tenant(own, spec *state.State) events.Key {
	r.t.Helper()
	key := r.turn(own).Key
	if spec != nil {
		if _, err := r.intake.Bus.WriteState(r.t.Context(), key, events.KeySpec, spec, 0); err != nil {
			r.t.Fatal(err)
		}
	}
	return key
}

// corrupt writes what is no state, and returns its revision.
func (r *reads) corrupt(l *Loop, key events.Key, data string) uint64 {
	r.t.Helper()
	m := nats.NewMsg("$KV." + key.Bucket() + "." + l.stateKey())
	m.Data = []byte(data)
	ack, err := l.Bus.JetStream().PublishMsg(r.t.Context(), m)
	if err != nil {
		r.t.Fatal(err)
	}
	return ack.Sequence
}

func TestWhatATurnReads(t *testing.T) {
	t.Parallel()
	r := newReads(t)
	of := func(uid string, generation int64, data string) *state.State {
		return &state.State{UID: uid, Generation: generation, Data: []byte(data)}
	}
	const spec = `{"name":"demo"}`
	load := func(l *Loop, key events.Key) (*Turn, int, error) {
		turn, before := &Turn{Key: key, loop: l}, l.Bus.Conn().Stats().OutMsgs
		err := turn.load(t.Context(), false)
		return turn, int(l.Bus.Conn().Stats().OutMsgs - before), err
	}
	for what, c := range map[string]struct {
		own, spec  *state.State
		uid        string
		generation int64
		none       bool // it has no own state
	}{
		"nothing":                           {none: true},
		"a spec alone":                      {spec: of("u", 2, spec), uid: "u", generation: 2, none: true},
		"an own state alone":                {own: of("u", 2, "{}")},
		"both":                              {own: of("u", 1, "{}"), spec: of("u", 2, spec), uid: "u", generation: 2},
		"an own state of an earlier tenant": {own: of("v", 1, "{}"), spec: of("u", 2, spec), uid: "u", generation: 2, none: true},
		"an own state of a later generation of one": {own: of("v", 3, "{}"), spec: of("u", 2, spec), uid: "u", generation: 2, none: true},
	} {
		key := r.tenant(c.own, c.spec)
		for again := range 2 { // all but the first meeting asks any server
			turn, _, err := load(r.loop, key)
			if err != nil || turn.UID != c.uid || turn.Generation != c.generation || (turn.Tenant != nil) != (c.spec != nil) {
				t.Errorf("%s: %v, %+v", what, err, turn)
			}
			if (turn.own == nil) != c.none || (turn.revision > 0) != (c.own != nil) || turn.Unreadable() {
				t.Errorf("%s: own state %+v of revision %d", what, turn.own, turn.revision)
			}
			if met := again == 1 && !c.none; turn.first == met {
				t.Errorf("%s: first is %v", what, turn.first)
			}
		}
	}
	t.Run("nothing is asked about what has no bucket", func(t *testing.T) {
		for _, key := range []events.Key{events.DataStore("main"), {Kind: event.TenantControlPlanes, Namespace: "default", Name: "no.bucket"}} {
			if turn, asked, err := load(r.loop, key); err != nil || asked > 0 || turn.first {
				t.Errorf("%s: %d messages, %v", key, asked, err)
			}
		}
	})
	t.Run("a spec that is older than the own state is asked of the leader", func(t *testing.T) {
		asked := func(own, spec *state.State) int {
			t.Helper()
			key := r.tenant(own, spec)
			if _, _, err := load(r.loop, key); err != nil {
				t.Fatal(err)
			}
			known := &Turn{Key: key, loop: r.loop}
			_, known.revision, _ = r.loop.Bus.ReadState(t.Context(), key, "certs")
			known.notePublished()
			_, n, err := load(r.loop, key)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		usual := asked(of("u", 2, "{}"), of("u", 2, spec))
		for what, c := range map[string]struct {
			own, spec *state.State
			more      bool
		}{
			"a later generation":                     {of("u", 3, "{}"), of("u", 2, spec), true},
			"an earlier generation":                  {of("u", 1, "{}"), of("u", 2, spec), false},
			"a later generation of another":          {of("v", 3, "{}"), of("u", 2, spec), false},
			"a later generation of one without spec": {of("u", 3, "{}"), nil, false},
			"none":                                   {nil, of("u", 2, spec), false},
		} {
			if n := asked(c.own, c.spec); (n > usual) != c.more {
				t.Errorf("%s: %d messages, %d as a rule", what, n, usual)
			}
		}
	})
	t.Run("to intake the spec is its own state", func(t *testing.T) {
		key := r.tenant(of("u", 3, "{}"), of("u", 2, spec))
		turn, _, err := load(r.intake, key)
		if err != nil || turn.own == nil || turn.Tenant == nil || turn.Generation != 2 || turn.UID != "u" {
			t.Errorf("%v, %+v", err, turn)
		}
		for _, data := range []string{"{", `{"uid":"u","generation":1,"data":"no tenant"}`} {
			revision := r.corrupt(r.intake, key, data)
			turn, _, err := load(r.intake, key)
			if err != nil || turn.own != nil || turn.Tenant != nil || !turn.Unreadable() || turn.revision != revision {
				t.Errorf("%s: %v, %+v", data, err, turn)
			}
		}
	})
	t.Run("an own state that can't be read is replaced", func(t *testing.T) {
		key := r.tenant(nil, of("u", 2, spec))
		revision := r.corrupt(r.loop, key, "{")
		turn, _, err := load(r.loop, key)
		if err != nil || turn.own != nil || turn.Tenant == nil || !turn.Unreadable() || turn.revision != revision {
			t.Errorf("%v, %+v", err, turn)
		}
	})
	t.Run("a spec that can't be read is told, and waited for", func(t *testing.T) {
		for _, data := range []string{"{", `{"uid":"u","generation":1,"data":"no tenant"}`} {
			for _, own := range []*state.State{nil, of("u", 7, "{}")} {
				key := r.tenant(own, nil)
				r.corrupt(r.intake, key, data)
				turn := &Turn{Key: key, loop: r.loop, attempt: 4}
				fenced := fence.With(t.Context(), func() bool { return false })
				if err := turn.load(fenced, false); !errors.Is(err, fence.ErrFenced) {
					t.Errorf("%s: told though it may not: %v", data, err)
				}
				var away *intent.Unavailable
				if err := turn.load(t.Context(), false); !errors.As(err, &away) || away.Dependency != "" || turn.Tenant != nil {
					t.Errorf("%s: %v, %+v", data, err, turn)
				}
				last, err := r.operator.LastFact(t.Context(), key.FactSubject("certs", event.Failed))
				if err != nil || last == nil {
					t.Fatalf("%s: not told: %v", data, err)
				}
				var f event.StepFailed
				if err := json.Unmarshal(last.Data(), &f); err != nil || f.Reason != reason.InvalidState || f.Attempts != 5 || !f.Retrying {
					t.Errorf("%s: told is %+v, %v", data, f, err)
				}
				if own != nil && (f.UID != "u" || f.Generation != 7) {
					t.Errorf("%s: told of %+v", data, f.About)
				}
			}
		}
	})
	t.Run("a spec that is behind an event of the turn is read again", func(t *testing.T) {
		key := r.tenant(of("u", 2, "{}"), of("u", 2, spec))
		about := event.About{Namespace: key.Namespace, Name: key.Name, UID: "u", Generation: 3}
		e := r.intake.Bus.NewEvent(key, "3", event.FactType("intake", event.Accepted), event.IntakeAccepted{About: about}, time.Now())
		turn := &Turn{Key: key, loop: r.loop, Events: []Event{{Event: e, Service: "intake", What: event.Accepted}}}
		if err := turn.load(t.Context(), false); !errors.Is(err, intent.ErrStale) || turn.Tenant != nil {
			t.Errorf("%v, %+v", err, turn)
		}
	})
	t.Run("what can't be asked is an error", func(t *testing.T) {
		gone := r.server.Connect(t, "certs", "")
		gone.Close()
		l := &Loop{Bus: gone, Service: "certs"}
		l.prepare(t.Context())
		if _, _, err := load(l, r.tenant(of("u", 2, "{}"), of("u", 2, spec))); err == nil {
			t.Error("it is none")
		}
	})
}

func TestWhatATurnReadsOfAnotherService(t *testing.T) {
	t.Parallel()
	r := newReads(t)
	key := r.tenant(&state.State{UID: "u", Generation: 2, Data: []byte(`{"a":"b"}`)}, nil)
	type data map[string]string
	for what, c := range map[string]struct {
		service, uid string
		want         bool
	}{
		"its state":             {"certs", "u", true},
		"when none has a UID":   {"certs", "", true},
		"of an earlier tenant":  {"certs", "v", false},
		"when there is none":    {"workload", "u", false},
		"when it can't be read": {"intake", "u", false},
	} {
		if c.service == "intake" {
			r.corrupt(r.intake, key, "{")
		}
		turn, got := &Turn{Key: key, UID: c.uid, loop: r.loop}, data{}
		s, err := turn.Read(t.Context(), c.service, &got)
		if err != nil || (s != nil) != c.want || (got["a"] == "b") != c.want {
			t.Errorf("%s: %+v, %v, %v", what, s, got, err)
		}
	}
	turn := &Turn{Key: key, UID: "u", loop: r.loop}
	if s, err := turn.Read(t.Context(), "certs", nil); err != nil || s == nil {
		t.Errorf("without its data: %+v, %v", s, err)
	}
	var shape []string
	if s, err := turn.Read(t.Context(), "certs", &shape); err == nil || s != nil {
		t.Errorf("of another shape: %+v, %v", s, err)
	}
	empty := &Turn{Key: r.tenant(&state.State{UID: "u", Generation: 2}, nil), UID: "u", loop: r.loop}
	if s, err := empty.Read(t.Context(), "certs", &shape); err != nil || s == nil {
		t.Errorf("without data: %+v, %v", s, err)
	}
	r.loop.Bus.Close()
	if s, err := turn.Read(t.Context(), "certs", nil); err == nil || s != nil {
		t.Errorf("what can't be asked: %+v, %v", s, err)
	}
}

func TestATurnAdoptsAnObject(t *testing.T) {
	t.Parallel()
	r := newReads(t)
	fenced := fence.With(t.Context(), func() bool { return false })
	adopt := func(key events.Key) *Turn {
		t.Helper()
		turn := &Turn{Key: key, loop: r.intake}
		if err := turn.load(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		return turn
	}
	own := &state.State{UID: "u", Generation: 1, Data: []byte("{}")}
	key := r.tenant(nil, own)
	turn, before := adopt(key), r.intake.Bus.Conn().Stats().OutMsgs
	if err := turn.Adopt(fenced, "u", 2); err != nil || turn.own == nil || turn.Tenant == nil || turn.UID != "u" || turn.Generation != 2 {
		t.Errorf("its own: %v, %+v", err, turn)
	}
	if n := r.intake.Bus.Conn().Stats().OutMsgs - before; n > 0 {
		t.Errorf("%d messages for one that is known", n)
	}
	turn = adopt(key)
	if err := turn.Adopt(fenced, "v", 1); !errors.Is(err, fence.ErrFenced) || turn.UID != "u" {
		t.Errorf("a new one, though it may not: %v, %+v", err, turn)
	}
	if err := turn.Adopt(t.Context(), "v", 1); err != nil || turn.own != nil || turn.revision != 0 || turn.Tenant != nil || turn.UID != "v" {
		t.Errorf("a new one: %v, %+v", err, turn)
	}
	if err := turn.Done(t.Context(), Outcome{Step: event.Accepted, Data: state.Tenant{}}); err != nil {
		t.Errorf("the bucket isn't made anew: %v", err)
	}
	first := adopt(events.Tenant("default", "first"))
	if err := first.Adopt(fenced, "u", 1); !errors.Is(err, fence.ErrFenced) || first.UID != "" {
		t.Errorf("the first, though it may not: %v, %+v", err, first)
	}
	if err := first.Adopt(t.Context(), "u", 1); err != nil || first.Done(t.Context(), Outcome{Step: event.Accepted, Data: state.Tenant{}}) != nil {
		t.Errorf("the first: %v", err)
	}
}
