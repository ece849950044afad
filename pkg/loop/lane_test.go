package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/health"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func newLane() *lane {
	return &lane{
		key: events.Tenant("default", "demo"), woken: map[wakeOf]Wake{}, news: make(chan struct{}, 1), ctx: context.Background(),
		closed: make(chan struct{}),
	}
}

func TestALaneIsOverWhenNothingIsToBeDoneOrItsPartitionIsGivenUp(t *testing.T) {
	seen, came := Wake{Kind: "seen"}, &delivery{}
	for what, c := range map[string]struct {
		queue  []*delivery
		woken  []Wake
		before work // of a try that failed
		closed bool
		over   bool
	}{
		"nothing came":                            {over: true},
		"an event":                                {queue: []*delivery{came}},
		"a wake":                                  {woken: []Wake{seen}},
		"nothing came since a try with an event":  {before: work{batch: []*delivery{came}}},
		"nothing came since a try with a wake":    {before: work{wakes: []Wake{seen}}},
		"nothing came, and the partition is gone": {closed: true, over: true},
		"a wake, and the partition is gone":       {woken: []Wake{seen}, closed: true, over: true},
	} {
		t.Run(what, func(t *testing.T) {
			n, w := newLane(), c.before
			l := &Loop{lanes: map[events.Key]*lane{n.key: n}}
			n.queue = c.queue
			for _, wake := range c.woken {
				n.woken[wake.of()] = wake
			}
			if c.closed {
				n.close()
				n.close() // once more, as when a partition is lost while it is given up
			}
			n.news <- struct{}{}
			if on := l.collect(n, &w); on == c.over || (l.lanes[n.key] == nil) != c.over {
				t.Errorf("it goes on: %v; lanes %v", on, l.lanes)
			}
			if len(n.queue) > 0 || len(n.woken) > 0 || len(n.news) > 0 {
				t.Errorf("it is left in the lane: %+v", n)
			}
			if len(w.batch) != len(c.queue)+len(c.before.batch) || len(w.wakes) != len(c.woken)+len(c.before.wakes) {
				t.Errorf("collected: %+v", w)
			}
		})
	}
}

func TestOfWakesAboutOneThingTheLastCounts(t *testing.T) {
	l, n := &Loop{}, newLane()
	w := work{wakes: []Wake{{Kind: "secret", Object: "a", Version: "1"}, {Kind: "secret", Object: "b", Version: "1"}}}
	for _, wake := range []Wake{{Kind: "secret", Object: "a", Version: "2"}, {Kind: "pods", Object: "a"}} {
		n.woken[wake.of()] = wake
	}
	l.collect(n, &w)
	want := []Wake{{Kind: "secret", Object: "a", Version: "2"}, {Kind: "secret", Object: "b", Version: "1"}, {Kind: "pods", Object: "a"}}
	if !slices.Equal(w.wakes, want) {
		t.Errorf("the turn has %+v", w.wakes)
	}
}

func TestALaneWaitsUntilTheNextTryIsDue(t *testing.T) {
	const backoff = 5 * time.Second
	for what, c := range map[string]struct {
		attempts int
		news     bool
		end      time.Duration // of the lane's partition, or its context
		want     time.Duration
	}{
		"nothing comes":                         {attempts: 1, want: backoff},
		"something comes, at the first failure": {attempts: 0, news: true, want: 0},
		"something comes, after three failures": {attempts: 3, news: true, want: 150 * time.Millisecond},
		"something comes, after many":           {attempts: 100, news: true, want: time.Second},
		"it ends":                               {attempts: 1, end: 2 * time.Second, want: 2 * time.Second},
		"something comes, and it ends":          {attempts: 100, news: true, end: 500 * time.Millisecond, want: 500 * time.Millisecond},
	} {
		for _, gone := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, partition gone: %v", what, gone), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := newLane()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					n.ctx = ctx
					if c.news {
						n.news <- struct{}{}
					}
					switch {
					case c.end > 0 && gone:
						time.AfterFunc(c.end, n.close)
					case c.end > 0:
						time.AfterFunc(c.end, cancel)
					}
					began := time.Now()
					n.waitForRetry(c.attempts, backoff)
					if waited := time.Since(began); waited != c.want { // by the clock of synctest
						t.Errorf("it waits %s, not %s", waited, c.want)
					}
				})
			})
		}
	}
}

func TestWhoWaitsForADependencyLastSaysThatItIsBack(t *testing.T) {
	l := &Loop{lanes: map[events.Key]*lane{}, health: health.New(slog.New(slog.DiscardHandler))}
	is := func(dependency string, want bool) {
		t.Helper()
		if got, _ := away(l.health, dependency); got != want {
			t.Errorf("%s is away: %v", dependency, got)
		}
	}
	alone := newLane()
	one := &Loop{lanes: map[events.Key]*lane{alone.key: alone}, health: l.health}
	one.waitsFor(alone, "cache")
	if _, known := away(l.health, ""); known {
		t.Error("what waits for nothing says that it is back")
	}
	var lanes []*lane
	for i := range 20 { // most wait for nothing
		n := newLane()
		n.key = events.Tenant("default", fmt.Sprint("t", i))
		l.lanes[n.key], lanes = n, append(lanes, n)
	}
	a, b := lanes[0], lanes[1]
	for _, n := range lanes {
		l.waitsFor(n, "")
	}
	if _, known := away(l.health, ""); known {
		t.Error("nothing is a dependency")
	}
	l.health.Down("db", errors.New("a test"))
	for _, n := range []*lane{a, b, a, b} { // and again at the next try
		l.waitsFor(n, "db")
	}
	is("db", true)
	l.waitsFor(a, "")
	is("db", true)
	l.health.Down("api", errors.New("a test"))
	l.waitsFor(b, "api")
	is("db", false)
	is("api", true)
	l.waitsFor(b, "")
	is("api", false)
}

// lanes is a loop without a server, in a bubble of synctest, and the turns of one lane of it.
type lanes struct {
	t     *testing.T
	loop  *Loop
	key   events.Key
	sent  uint64
	turns [][]string      // the events of each
	tries []int           // the attempt of each
	at    []time.Duration // when each began, since the start
}

// startLanes has the nth turn end as handle says.
func startLanes(t *testing.T, handle func(n int, turn *Turn) error) *lanes {
	log := slog.New(slog.DiscardHandler)
	x := &lanes{t: t, key: events.DataStore("main"), loop: &Loop{
		lanes: map[events.Key]*lane{}, holding: map[origin]*delivery{}, turns: t.Context(), log: log, health: health.New(log),
		metrics: newMetrics(), lease: working(nil), alarms: &alarms{}, running: make(chan struct{}, 1), failing: make(chan struct{}, 1),
	}}
	began := time.Now()
	x.loop.Handle = func(_ context.Context, turn *Turn) error {
		var saw []string
		for _, e := range turn.Events {
			saw = append(saw, e.What)
		}
		x.turns, x.tries, x.at = append(x.turns, saw), append(x.tries, turn.Attempt()), append(x.at, time.Since(began))
		return handle(len(x.turns), turn)
	}
	return x
}

// comes adds an event, and returns the lane that it is in.
func (x *lanes) comes(what string) *lane {
	x.loop.mu.Lock()
	x.sent++
	d := delivered(x.key, what, x.sent, 1)
	x.loop.holding[d.origin] = d
	x.loop.mu.Unlock()
	x.loop.enqueue(x.key, d, Wake{})
	x.loop.mu.Lock()
	defer x.loop.mu.Unlock()
	return x.loop.lanes[x.key]
}

// unanswered is how many events are.
func (x *lanes) unanswered() int {
	x.loop.mu.Lock()
	defer x.loop.mu.Unlock()
	return len(x.loop.holding)
}

// over waits for the end of a lane, which leaves nothing behind.
func (x *lanes) over(n *lane) {
	x.t.Helper()
	<-n.done
	if x.unanswered() > 0 || len(x.loop.lanes) > 0 || n.ctx.Err() == nil {
		x.t.Errorf("left are %d events, %d lanes, the context: %v", x.unanswered(), len(x.loop.lanes), n.ctx.Err())
	}
	x.loop.wg.Wait()
}

func TestALaneTriesUntilAllIsDoneAndThenBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x *lanes
		woken := false
		x = startLanes(t, func(n int, turn *Turn) error {
			woken = turn.Woken("seen")
			switch n {
			case 1:
				x.comes("fact")
			case 2:
				turn.ended = append(turn.ended, turn.Events[0].Raw)
			case 3:
				if unanswered := x.unanswered(); unanswered != 1 {
					t.Errorf("a command that has ended waits for the rest of its turn: %d are unanswered", unanswered)
				}
			case 5:
				x.comes("later")
				return nil
			case 7, 8:
				return nil
			}
			return errors.New("not yet")
		})
		n := x.comes("command")
		x.over(n)
		if got := fmt.Sprint(x.turns, x.tries); got != "[[command] [command fact] [fact] [fact] [fact] [later] [later]] [0 1 2 3 4 0 1]" {
			t.Fatal(got)
		}
		if first, third, anew := x.at[2]-x.at[1], x.at[4]-x.at[3], x.at[6]-x.at[5]; third < 2*first || anew >= third/2 {
			t.Errorf("pauses of %s and %s, and after what was done %s", first, third, anew) // by the clock of synctest
		}
		x.loop.enqueue(x.key, nil, Wake{Kind: "seen"})
		x.loop.wg.Wait()
		if !woken || len(x.turns) != 8 {
			t.Errorf("a wake after its end: a turn for it: %v, %v", woken, x.turns)
		}
	})
}

func TestALaneThatIsEndedHandsBackItsEvents(t *testing.T) {
	for what, c := range map[string]struct {
		err  error
		end  func(*lane)
		away bool
	}{
		"its partition is given up":       {err: errors.New("not yet"), end: (*lane).close},
		"its time is over":                {err: errors.New("not yet"), end: func(n *lane) { n.cancel() }},
		"it waits for a dependency":       {err: &intent.Unavailable{Dependency: "db", Err: errors.New("refused")}, end: (*lane).close, away: true},
		"it waits, and its time is over":  {err: &intent.Unavailable{Dependency: "db", Err: errors.New("refused")}, end: func(n *lane) { n.cancel() }, away: true},
		"another replica may work on it ": {err: intent.ErrStale, end: (*lane).close},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := startLanes(t, func(int, *Turn) error { return c.err })
				n := x.comes(event.Accepted)
				synctest.Wait()
				if down, _ := away(x.loop.health, "db"); down != c.away {
					t.Errorf("it waits: %v", down)
				}
				x.loop.mu.Lock()
				c.end(n)
				x.loop.mu.Unlock()
				x.over(n)
				if down, _ := away(x.loop.health, "db"); down || !n.isClosed() || len(x.turns) != 1 {
					t.Errorf("still away: %v, closed: %v, turns: %v", down, n.isClosed(), x.turns)
				}
			})
		})
	}
}

func TestALaneThatKeepsDriftingHasOneTurnForAWakeAndAnEventThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := false
		x := startLanes(t, func(_ int, turn *Turn) error { woken = turn.Woken("seen"); return nil })
		x.loop.drifts, x.loop.driftEvery = map[events.Key]*drifts{}, driftEvery
		for range driftBurst {
			(&Turn{Key: x.key, loop: x.loop}).Drifted("a Secret")
		}
		x.loop.enqueue(x.key, nil, Wake{Kind: "seen"})
		synctest.Wait()
		if len(x.turns) > 0 {
			t.Errorf("it doesn't wait: %v", x.turns)
		}
		x.over(x.comes(event.Accepted))
		if fmt.Sprint(x.turns) != "[[accepted]]" || !woken {
			t.Errorf("turns %v, woken: %v", x.turns, woken)
		}
		x.loop.forgetDrift(x.key)
	})
}
