package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestWhichTriesCount(t *testing.T) {
	for what, c := range map[string]struct {
		intent             intent.Intent
		attempts, failures int
	}{
		"one that another replica makes":  {intent.HandOver, 0, 0},
		"one that was overtaken":          {intent.Reread, 0, 0},
		"one that waits for a dependency": {intent.Wait, 1, 0},
		"one that fails":                  {intent.Retry, 1, 1},
		"one that no retry helps":         {intent.GiveUp, 1, 1},
	} {
		w := work{}
		if w.count(c.intent); w.attempts != c.attempts || w.failures != c.failures {
			t.Errorf("%s: %d attempts, %d failures", what, w.attempts, w.failures)
		}
	}
}

func TestThoseThatFailedHaveAQuarterOfThePlaces(t *testing.T) {
	l := &Loop{running: make(chan struct{}, maxTurns), failing: make(chan struct{}, maxFailing)}
	taken := func(running, failing int) {
		t.Helper()
		if len(l.running) != running || len(l.failing) != failing {
			t.Errorf("%d places are taken, %d of them by those that failed", len(l.running), len(l.failing))
		}
	}
	waits, ended := newLane(), newLane()
	waits.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended.ctx = ctx
	refused := func(what string, failed bool) {
		t.Helper()
		if _, err := l.takeSlot(waits, failed); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("%s gets %v when its partition is given up", what, err)
		}
		if _, err := l.takeSlot(ended, failed); !errors.Is(err, context.Canceled) {
			t.Errorf("%s gets %v when it is ended", what, err)
		}
	}
	var frees []func()
	take := func(n int, failed bool) {
		t.Helper()
		for range n {
			free, err := l.takeSlot(newLane(), failed)
			if err != nil {
				t.Fatal(err)
			}
			frees = append(frees, free)
		}
	}
	take(maxFailing, true)
	taken(maxFailing, maxFailing)
	refused("one more that failed", true)
	taken(maxFailing, maxFailing)
	take(maxTurns-maxFailing, false)
	taken(maxTurns, maxFailing)
	refused("one more that is well", false)
	frees[0]()
	taken(maxTurns-1, maxFailing-1)
	take(1, false)
	// There is a place for one that failed, and no place beside all others: it gives back the one that it has.
	for range 2 * maxFailing {
		refused("one that failed", true)
	}
	taken(maxTurns, maxFailing-1)
	for _, free := range frees[1:] {
		free()
	}
	taken(0, 0)
}

func TestATurnOfWhatWatchesSawAndTheServiceKnowsIsNone(t *testing.T) {
	asked := 0
	known := func(events.Key, []Wake) bool { asked++; return true }
	for what, c := range map[string]struct {
		batch []*delivery
		known func(events.Key, []Wake) bool
		none  bool
		asked int
	}{
		"what the service knows":                  {known: known, none: true, asked: 1},
		"what it doesn't":                         {known: func(events.Key, []Wake) bool { asked++; return false }, asked: 1},
		"what a service sees that can't say":      {},
		"an event, beside which nothing is known": {batch: []*delivery{{}}, known: known},
	} {
		asked = 0
		n := newLane()
		n.close() // so that a turn ends before it begins
		l := &Loop{Known: c.known, running: make(chan struct{})}
		if err := l.turn(n, work{batch: c.batch, wakes: []Wake{{Kind: "seen"}}}); (err == nil) != c.none || asked != c.asked {
			t.Errorf("%s: %v, asked %d times", what, err, asked)
		}
	}
}

// delivered is a fact of intake about an object as a turn gets it, which was delivered a number of times.
func delivered(key events.Key, what string, sequence, count uint64) *delivery {
	raw := &nats.Msg{Subject: key.FactSubject("intake", what), Header: nats.Header{}, Data: []byte("{}")}
	return &delivery{
		event: Event{Service: "intake", What: what, Raw: raw}, latest: raw, count: count, partition: key.Partition(),
		origin: origin{stream: events.StreamFacts, sequence: sequence},
	}
}

func TestATurnMayWriteInTheTermInWhichItBegan(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	key := events.DataStore("main")
	p := key.Partition()
	nothing := func(*lease) {}
	for what, c := range map[string]struct {
		before, within func(*lease)
		runs, writes   bool
	}{
		"while its partition is held":        {nothing, nothing, true, true},
		"a partition that another holds":     {func(l *lease) { l.owned[p] = false }, nothing, false, false},
		"a lease that is over":               {func(l *lease) { l.deadline = deadline{} }, nothing, false, false},
		"one that is lost meanwhile":         {nothing, func(l *lease) { l.owned[p] = false }, true, false},
		"one that is lost, and held again":   {nothing, func(l *lease) { l.terms[p]++ }, true, false},
		"a lease that is over meanwhile":     {nothing, func(l *lease) { l.deadline = deadline{} }, true, false},
		"another partition, which is lost":   {nothing, func(l *lease) { l.owned[(p+1)%2], l.owned[p] = false, true }, true, true},
		"one that is handed over at its end": {nothing, func(l *lease) { l.leaving[p] = true }, true, true},
	} {
		for attempts := range 2 {
			l, n, runs := working(e.loop.Bus), newLane(), false
			n.key, e.loop.lease = key, l
			c.before(l)
			e.loop.Handle = func(ctx context.Context, turn *Turn) error {
				runs = true
				if len(e.loop.running) != 1 || len(e.loop.failing) != attempts || turn.Attempt() != attempts {
					t.Errorf("%s, attempt %d: %d places, %d of those that failed", what, turn.Attempt(), len(e.loop.running), len(e.loop.failing))
				}
				c.within(l)
				return fence.Check(ctx)
			}
			err := e.loop.turn(n, work{wakes: []Wake{{Kind: "seen"}}, attempts: attempts})
			if runs != c.runs || (err == nil) != c.writes || err != nil && !errors.Is(err, fence.ErrFenced) {
				t.Errorf("%s: it runs: %v, and ends with %v", what, runs, err)
			}
			if len(e.loop.running) > 0 || len(e.loop.failing) > 0 {
				t.Errorf("%s: it keeps its place", what)
			}
		}
	}
}

func TestATurnGetsItsEventsAndSaysWhichCommandsHaveEnded(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	key := events.DataStore("main")
	n := newLane()
	n.key, e.loop.lease = key, working(e.loop.Bus)
	w := work{batch: []*delivery{delivered(key, event.Accepted, 1, 1), delivered(key, event.Checked, 2, 1)}, wakes: []Wake{{Kind: "seen"}}}
	w.batch[0].origin.stored = time.Now().Add(-time.Minute).UnixNano()
	e.loop.Handle = func(_ context.Context, turn *Turn) error {
		if len(turn.Events) != 3 || turn.Events[0].What != event.Accepted || turn.Events[1].What != event.Checked || !turn.Due() || !turn.Woken("seen") {
			t.Errorf("it gets %+v and %v", turn.Events, turn.Wakes)
		}
		turn.ended = append(turn.ended, turn.Events[1].Raw)
		return errors.New("the other can't be worked on")
	}
	if err := e.loop.turn(n, w); err == nil || w.batch[0].ended || !w.batch[1].ended {
		t.Errorf("%v; ended: %v, %v", err, w.batch[0].ended, w.batch[1].ended)
	}
	_ = e.loop.turn(n, w) // once more, at an age that is not its own
	r := prometheus.NewRegistry()
	r.MustRegister(e.loop.metrics.turns, e.loop.metrics.events, e.loop.metrics.ages)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			counted[f.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	if want := map[string]float64{"stoker_step_duration_seconds": 2, "stoker_events_total": 4, "stoker_event_age_seconds": 1}; !maps.Equal(counted, want) {
		t.Errorf("counted: %v", counted)
	}
}

func TestATurnThatSucceedsEndsTheTriesOfWhatWasGivenUpAndKnowsWhatDrifts(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	turn := e.turn(&state.State{UID: "u", Generation: 2, Failure: &state.Failure{Reason: reason.KeepsDrifting}})
	t.Cleanup(func() { e.loop.alarms.stop(func(events.Key) bool { return true }); e.loop.forgetDrift(turn.Key) })
	e.loop.alarms.set(turn.Key, time.Hour, Wake{Kind: wakeAgain})
	if result, err := e.loop.conclude(t.Context(), newLane(), turn, work{}, nil); result != "done" || err != nil {
		t.Errorf("%s, %v", result, err)
	}
	if e.loop.alarms.m[alarmOf{turn.Key, true}] != nil || turn.Drifting() == nil {
		t.Errorf("alarms %v, it drifts: %v", e.loop.alarms.m, turn.Drifting())
	}
}

func TestWhatBecomesOfTheErrorOfATurn(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	t.Cleanup(func() { e.loop.alarms.stop(func(events.Key) bool { return true }) })
	gone := func(dependency string) error {
		return &intent.Unavailable{Dependency: dependency, Err: errors.New("refused")}
	}
	broken, permanent := errors.New("broken"), &intent.Permanent{Reason: "Stuck", Message: "no"}
	again := []Wake{{Kind: wakeAgain}}
	failed := func(reason string, attempts int, permanent bool) *state.Failure {
		return &state.Failure{Reason: reason, Attempts: attempts, Permanent: permanent}
	}
	for what, c := range map[string]struct {
		err                   error
		attempts, failures    int
		wakes                 []Wake // instead of an event
		partitionGone, cannot bool   // the lane has ended, nothing can be written
		result                string
		left                  bool // there is an error left: it is tried again
		noted                 *state.Failure
		dead                  bool
		waits                 string // for a dependency, then
	}{
		"none":                                            {err: nil, attempts: 5, result: "done"},
		"a dependency is away":                            {err: gone("api"), result: "unavailable", left: true, waits: "api"},
		"something of this object alone is away":          {err: gone(""), attempts: 2, failures: 40, result: "unavailable", left: true},
		"that, for long":                                  {err: gone(""), attempts: 3, failures: 40, result: "unavailable", left: true, noted: failed(reason.Unavailable, 3, false)},
		"no retry helps":                                  {err: permanent, attempts: 2, result: "dead", noted: failed("Stuck", 3, true), dead: true},
		"no retry helps, and that can't be said":          {err: permanent, cannot: true, result: "dead", left: true},
		"another replica works on it":                     {err: fence.ErrFenced, attempts: 30, failures: 30, result: "fenced", left: true},
		"somebody else wrote":                             {err: intent.ErrStale, attempts: 30, failures: 30, result: "fenced", left: true},
		"the lane ended":                                  {err: broken, attempts: 30, failures: 30, partitionGone: true, result: "fenced", left: true},
		"a failure":                                       {err: broken, attempts: 2, failures: 2, result: "retry", left: true},
		"the first failure that is told":                  {err: broken, attempts: 3, failures: 2, result: "retry", left: true, noted: failed(reason.StepFailed, 4, false)},
		"the last failure but one":                        {err: broken, attempts: 30, failures: 18, result: "retry", left: true, noted: failed(reason.StepFailed, 31, false)},
		"the last failure":                                {err: broken, attempts: 30, failures: 19, result: "dead", noted: failed(reason.RetriesExhausted, 31, true), dead: true},
		"the last failure, and that can't be said":        {err: broken, attempts: 30, failures: 19, cannot: true, result: "dead", left: true},
		"another try of what was given up fails":          {err: broken, wakes: again, result: "dead", noted: failed(reason.RetriesExhausted, 1, true)},
		"another try of what was given up finds it waits": {err: gone(""), wakes: again, result: "unavailable", left: true},
	} {
		t.Run(what, func(t *testing.T) {
			turn, n := e.turn(nil), newLane()
			n.key, n.away = turn.Key, "db"
			e.loop.lanes = map[events.Key]*lane{n.key: n}
			e.loop.health.Down("db", errors.New("a test"))
			e.loop.health.Up("api")
			ctx, cancel := context.WithCancel(t.Context())
			if cancel(); !c.cannot {
				ctx = t.Context()
			}
			if c.partitionGone {
				n.ctx, cancel = context.WithCancel(t.Context())
				cancel()
			}
			w := work{attempts: c.attempts, failures: c.failures, wakes: c.wakes}
			if c.wakes == nil {
				w.batch = []*delivery{delivered(turn.Key, event.Accepted, 1, 1)}
			}
			result, err := e.loop.conclude(ctx, n, turn, w, c.err)
			if result != c.result || (err != nil) != c.left || c.left && !c.cannot && !errors.Is(err, c.err) {
				t.Errorf("%s, %v", result, err)
			}
			noted := state.Failure{}
			if own, _, _ := e.written(turn); own != nil && own.Failure != nil {
				noted = *own.Failure
			}
			if c.noted == nil {
				c.noted = &state.Failure{}
			}
			if noted.Reason != c.noted.Reason || noted.Attempts != c.noted.Attempts || noted.Permanent != c.noted.Permanent || noted.RetryAt.IsZero() == noted.Permanent {
				t.Errorf("noted is %+v", noted)
			}
			dead, err := e.operator.JetStream().Stream(t.Context(), events.StreamDead)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := dead.GetLastMsgForSubject(t.Context(), turn.Key.DeadSubject("certs")); (err == nil) != c.dead {
				t.Errorf("in the dead letters: %v", err)
			}
			waited, ended := n.away, c.result == "done" || c.result == "unavailable"
			if ended && waited != c.waits || !ended && waited != "db" {
				t.Errorf("it waits for %q", waited)
			}
			for dependency, want := range map[string]bool{"db": !ended, "api": c.waits == "api", "": false} {
				if down, _ := away(e.loop.health, dependency); down != want {
					t.Errorf("health says that %q is away: %v", dependency, down)
				}
			}
		})
	}
}

// begins is a tenant with a spec and an own state that says of a fact, which the replica knows to be told.
func begins(e *ends, spec state.Tenant) events.Key {
	e.t.Helper()
	in := e.server.Connect(e.t, "intake", "")
	now := time.Now().UTC()
	turn := e.turn(&state.State{
		UID: "u", Generation: 2, Step: event.Removed, UpdatedAt: now, Facts: []state.Fact{{ID: fmt.Sprint("fact of ", e.tenants), What: event.Removed, Time: now}},
	})
	if _, err := in.WriteState(e.t.Context(), turn.Key, events.KeySpec, &state.State{UID: "u", Generation: 2, UpdatedAt: now, Data: event.Marshal(spec)}, 0); err != nil {
		e.t.Fatal(err)
	}
	turn.notePublished()
	return turn.Key
}

func TestWhatIsDoneBeforeTheHandlerIsCalled(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	e.loop.lease = working(e.loop.Bus)
	var handled, passed int
	var due bool
	var fails error
	e.loop.Handle = func(_ context.Context, turn *Turn) error { handled++; due = turn.Due(); return fails }
	e.loop.Paused = func(turn *Turn) {
		if passed++; turn.Tenant == nil {
			t.Error("of a tenant that is paused, nothing is read")
		}
	}
	try := func(ctx context.Context, key events.Key, w work) (*Turn, error) {
		handled, passed, due = 0, 0, false
		turn := &Turn{Key: key, Wakes: w.wakes, loop: e.loop}
		for _, d := range w.batch {
			turn.Events = append(turn.Events, d.event)
		}
		err := e.loop.attempt(ctx, turn, w)
		return turn, err
	}
	told := func(key events.Key) []string { _, _, told := e.written(&Turn{Key: key}); return told }
	t.Run("the states are read", func(t *testing.T) {
		turn, err := try(t.Context(), begins(e, state.Tenant{}), work{wakes: []Wake{{Kind: "seen"}}})
		if err != nil || handled != 1 || passed != 0 || due || turn.own == nil || turn.Tenant == nil {
			t.Errorf("%v, called %d times, due %v, %+v", err, handled, due, turn)
		}
	})
	t.Run("what fails then is the turn's error", func(t *testing.T) {
		fails = errors.New("broken")
		if _, err := try(t.Context(), begins(e, state.Tenant{}), work{}); !errors.Is(err, fails) {
			t.Error(err)
		}
		fails = nil
	})
	t.Run("without them it isn't called", func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := try(ended, begins(e, state.Tenant{}), work{}); err == nil || handled > 0 {
			t.Errorf("%v, called %d times", err, handled)
		}
	})
	t.Run("another try of what was given up is due", func(t *testing.T) {
		if _, err := try(t.Context(), begins(e, state.Tenant{}), work{wakes: []Wake{{Kind: wakeAgain}}}); err != nil || !due {
			t.Errorf("%v, due: %v", err, due)
		}
	})
	t.Run("a tenant that is paused is passed over", func(t *testing.T) {
		key := begins(e, state.Tenant{Paused: true})
		if _, err := try(t.Context(), key, work{}); err != nil || handled > 0 || passed != 1 {
			t.Errorf("%v, called %d times, passed over %d times", err, handled, passed)
		}
		before := e.loop.Paused
		e.loop.Paused = nil
		if _, err := try(t.Context(), key, work{}); err != nil || handled > 0 {
			t.Errorf("by a service that holds nothing: %v, called %d times", err, handled)
		}
		e.loop.Paused = before
	})
	t.Run("what was removed is told again, or the turn fails", func(t *testing.T) {
		key := begins(e, state.Tenant{Deleting: true})
		w := work{batch: []*delivery{delivered(key, event.Deleting, 1, 1)}}
		fenced := fence.With(t.Context(), func() bool { return false })
		if _, err := try(fenced, key, w); !errors.Is(err, fence.ErrFenced) || handled > 0 {
			t.Errorf("%v, called %d times", err, handled)
		}
		if _, err := try(t.Context(), key, w); err != nil || handled != 1 || !slices.Equal(told(key), []string{event.Removed}) {
			t.Errorf("%v, called %d times, told %v", err, handled, told(key))
		}
	})
	t.Run("facts are owed when one of the events was delivered again", func(t *testing.T) {
		key := begins(e, state.Tenant{})
		first, second := delivered(key, event.Accepted, 1, 1), delivered(key, event.Accepted, 2, 2)
		if _, err := try(t.Context(), key, work{batch: []*delivery{first}}); err != nil || len(told(key)) > 0 {
			t.Errorf("%v, told %v", err, told(key))
		}
		if _, err := try(t.Context(), key, work{batch: []*delivery{first, second}}); err != nil || len(told(key)) != 1 {
			t.Errorf("%v, told %v", err, told(key))
		}
	})
	t.Run("that a turn on a suspect event begins, and that it ended", func(t *testing.T) {
		key := begins(e, state.Tenant{})
		unended := func() string {
			data, _, err := e.loop.lease.read(t.Context(), "turn."+events.StreamFacts+".7.0")
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		suspect := work{batch: []*delivery{delivered(key, event.Accepted, 7, suspectAfter+1)}}
		if _, err := try(t.Context(), key, suspect); err != nil || unended() != "0" {
			t.Errorf("%v, unended turns: %s", err, unended())
		}
		if err := e.loop.noteUnended(t.Context(), "turn."+events.StreamFacts+".7.0", maxUnended); err != nil {
			t.Fatal(err)
		}
		turn, err := try(t.Context(), key, suspect)
		if intent.Of(err) != intent.GiveUp || handled > 0 || turn.own == nil || turn.Tenant == nil {
			t.Errorf("too many: %v, called %d times, %+v", err, handled, turn)
		}
		// Where it is to be noted can't be read: it is tried again, and not given up without a word.
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := try(ended, key, suspect); err == nil || intent.Of(err) == intent.GiveUp || handled > 0 {
			t.Errorf("%v, called %d times", err, handled)
		}
		corrupt := nats.NewMsg("$KV." + key.Bucket() + "." + events.KeySpec)
		corrupt.Data = []byte("{")
		if _, err := e.server.Connect(t, "intake", "").JetStream().PublishMsg(t.Context(), corrupt); err != nil {
			t.Fatal(err)
		}
		if _, err := try(t.Context(), key, suspect); intent.Of(err) != intent.Wait {
			t.Errorf("the spec can't be read: %v", err)
		}
	})
	t.Run("a panic is an error that no retry helps", func(t *testing.T) {
		e.loop.Handle = func(context.Context, *Turn) error { panic("boom") }
		_, err := try(t.Context(), events.DataStore("main"), work{})
		var permanent *intent.Permanent
		if !errors.As(err, &permanent) || permanent.Reason != reason.Panic {
			t.Error(err)
		}
	})
}
