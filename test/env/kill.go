package env

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// Kill is a kill of a process at a step in the life of an object that is made and removed.
type Kill struct {
	Step
	Removed bool // the step removes the object
	After   bool // the step is done when the process is killed
	index   int  // position among the steps of this half of the life
	missed  int  // number of lives in which the step did not come
}

// String says what it is.
func (k Kill) String() string {
	what := "killed before "
	if k.After {
		what = "killed after "
	}
	if k.Removed {
		what = "deleted, " + what
	}
	return what + k.Step.String()
}

// Kills are the remaining kills of a service. It is safe for concurrent use.
type Kills struct {
	mu  sync.Mutex
	all []Kill
}

// NewKills are a kill before and one after each step.
func NewKills(made, removed []Step) *Kills {
	left := &Kills{}
	for i, steps := range [][]Step{made, removed} {
		for index, s := range steps {
			for _, after := range []bool{true, false} {
				left.all = append(left.all, Kill{Step: s, Removed: i == 1, After: after, index: index})
			}
		}
	}
	return left
}

const (
	maxKills    = 4 // of one service in one half of an object's life
	minDistance = 2 // in steps, so that a process does something before it is killed again
)

// take takes kills for one half of an object's life, in the order of their steps. It takes only kills that may allows; a nil may allows all.
func (k *Kills) take(removed bool, may func(Kill) bool) (taken []Kill) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := 0; i < len(k.all) && len(taken) < maxKills; {
		next := k.all[i]
		fits := len(taken) == 0 || next.missed == 0 && next.index >= taken[len(taken)-1].index+minDistance
		if next.Removed != removed || may != nil && !may(next) || !fits {
			i++
			continue
		}
		taken, k.all = append(taken, next), slices.Delete(k.all, i, i+1)
	}
	return taken
}

// Left returns an error if a kill remains.
func (k *Kills) Left() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) == 0 {
		return nil
	}
	return fmt.Errorf("no process was %s", k.all[0])
}

func (k *Kills) putBack(kill Kill) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, kill)
}

// noteMissed notes that a life ended without the step of a kill, and puts the kill back for another life. Other kills change the order of the writes,
// so that a write may be unnecessary. One of several equal writes is given up after three lives; the test fails after three lives without the
// first of them.
func (k *Kills) noteMissed(t testing.TB, kill Kill) {
	t.Helper()
	switch kill.missed++; {
	case kill.missed < 3:
		k.putBack(kill)
	case kill.Nth == 1:
		t.Errorf("%d lives ended, and no process was %s", kill.missed, kill)
	default:
		t.Logf("%d lives ended, and no process was %s: the write is unnecessary", kill.missed, kill)
	}
}

// Target is a replica that is killed several times in the life of one object, and where its kills came from.
type Target struct {
	Replica
	Kills []Kill
	from  *Kills
}

// Targets takes kills of a replica for one half of an object's life. It takes only kills that may allows; a nil may allows all. The result is empty
// if no such kill remains.
func (k *Kills) Targets(r Replica, removed bool, may func(Kill) bool) []Target {
	kills := k.take(removed, may)
	if len(kills) == 0 {
		return nil
	}
	return []Target{{Replica: r, Kills: kills, from: k}}
}

// arm sets a trap for the first kill. The trap counts the writes that are like the step, from the message since on. It springs at the nth of them, or
// at the next one if the nth was made already.
func (r Target) arm(object string, since int) (killed <-chan struct{}) {
	is, n := r.Kills[0].is(object), 0
	for _, m := range r.Tap.Messages(since) {
		if is(m) && !m.Lost {
			n++
		}
	}
	at, nth := r.Tap.KillBefore, max(r.Kills[0].Nth, n+1)
	if r.Kills[0].After {
		at = r.Tap.KillAfter
	}
	return at(r.Process, func(m Message) bool {
		if is(m) {
			n++
		}
		return n == nth
	})
}

// KillAll kills replicas of different services at their steps in the life of one object, and starts them again. begin begins the life. KillAll
// returns when all kills are made, or when over has reported for a while that the life is over. It puts back the kills whose step did not
// come.
func KillAll(t testing.TB, object string, targets []Target, begin func(), over func() bool) {
	t.Helper()
	killed, since := make([]<-chan struct{}, len(targets)), make([]int, len(targets))
	for i, r := range targets {
		t.Logf("%s %s is %s", r.Name, r.Process.Replica, r.Kills)
		since[i] = len(r.Tap.Messages(0))
		killed[i] = r.arm(object, since[i])
		defer r.Tap.Disarm()
	}
	begin()
	left := func(i int) bool { return len(targets[i].Kills) > 0 }
	restart := func(i int) {
		r := &targets[i]
		r.Restart(t)
		if r.Kills = r.Kills[1:]; left(i) {
			killed[i] = r.arm(object, since[i])
		}
	}
	for done := false; !done; {
		calm := 0
		Eventually(t, "the next kill, or the end of the life of "+object, func() error {
			done = true
			var waits error
			for i, r := range targets {
				if !left(i) {
					continue
				}
				select {
				case <-killed[i]:
					restart(i)
					done = false
					return nil
				default:
					done = false
					waits = fmt.Errorf("%s %s waits for %s", r.Name, r.Process.Replica, r.Kills[0].Step)
				}
			}
			if waits == nil {
				return nil
			}
			if !over() {
				calm = 0
				return waits
			}
			if calm++; calm > 20 {
				done = true
				return nil
			}
			return waits
		})
	}
	for i := range targets {
		r := &targets[i]
		if left(i) && !r.Tap.Disarm() {
			<-killed[i]
			restart(i)
			r.Tap.Disarm()
		}
		for j, kill := range r.Kills {
			if j == 0 {
				r.from.noteMissed(t, kill)
			} else {
				r.from.putBack(kill) // no trap was set for it
			}
		}
	}
}

// Replica is a process, and the tap on what it sends.
type Replica struct {
	*Process
	Tap *Tap
}

// Replicas starts tapped replicas of a service, until the test ends. They don't hold their parts yet; see Shared.
func (e *Env) Replicas(t testing.TB, service string, names ...string) (all []Replica) {
	t.Helper()
	for _, n := range names {
		p, tap := e.Tapped(t, service, n)
		all = append(all, Replica{p, tap})
	}
	return all
}

// Shared waits until replicas of a service share all partitions, each partition held by one.
func Shared(t testing.TB, replicas []Replica) {
	t.Helper()
	Eventually(t, "the replicas of "+replicas[0].Name+" to share", func() error {
		var held []int
		for _, r := range replicas {
			ours := r.Held(t)
			if len(ours) == 0 {
				return fmt.Errorf("%s holds nothing", r.Process.Replica)
			}
			held = append(held, ours...)
		}
		if slices.Sort(held); len(held) != name.Partitions || len(slices.Compact(held)) != name.Partitions {
			return fmt.Errorf("%v are held", held)
		}
		return nil
	})
}

// TenantOf is the key of a tenant that all replicas hold, each for its service; its name begins and ends as given. Replicas of the same name hold the
// same partitions when all is calm.
func TenantOf(t testing.TB, replicas []Replica, prefix, suffix string) (key events.Key) {
	t.Helper()
	Eventually(t, "replicas to hold the same tenant", func() error {
		held := replicas[0].Held(t)
		for _, r := range replicas[1:] {
			theirs := r.Held(t)
			held = slices.DeleteFunc(slices.Clone(held), func(p int) bool { return !slices.Contains(theirs, p) })
		}
		for i := range 100 * name.Partitions {
			if key = events.Tenant("default", fmt.Sprintf("%s-%d%s", prefix, i, suffix)); slices.Contains(held, key.Partition()) {
				return nil
			}
		}
		return errors.New("they hold none")
	})
	return key
}
