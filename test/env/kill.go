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
	index   int  // of the step among those that make, or remove, the object
	missed  int  // how often the object's life came to its end without the step
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
	killsOfLife = 4 // at most, of one service in one half of an object's life
	killsApart  = 2 // so many steps, so that a process does something before it is killed again
)

// Take takes kills for one half of an object's life, in the order of their steps; any that may be made if may is nil.
func (k *Kills) Take(removed bool, may func(Kill) bool) (taken []Kill) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := 0; i < len(k.all) && len(taken) < killsOfLife; {
		next := k.all[i]
		fits := len(taken) == 0 || next.missed == 0 && next.index >= taken[len(taken)-1].index+killsApart
		if next.Removed != removed || may != nil && !may(next) || !fits {
			i++
			continue
		}
		taken, k.all = append(taken, next), slices.Delete(k.all, i, i+1)
	}
	return taken
}

// Left returns an error for a kill that nobody took.
func (k *Kills) Left() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) == 0 {
		return nil
	}
	return fmt.Errorf("nobody was %s", k.all[0])
}

// missed puts a kill back whose step did not come. Other kills change the order of the writes, so that a write may not be needed; the test fails when
// a step never comes. One of several writes alike may not be needed at all.
func (k *Kills) missed(t testing.TB, of Kill, first bool) {
	t.Helper()
	if of.missed++; of.missed == 3 && of.Nth == 1 {
		t.Errorf("the object's life came to its end three times without a process that was %s", of)
	}
	if of.missed == 3 || first && of.Nth > 1 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, of)
}

// Target is a replica that is killed several times in the life of one object, and where its kills came from.
type Target struct {
	Replica
	Kills []Kill
	From  *Kills
}

// arm has the next kill happen, at the nth write that is like the step since a message of the tap; if that was made already, at the next one.
func (r Target) arm(object string, since int) (killed <-chan struct{}) {
	is, n := r.Kills[0].is(object), 0
	for _, m := range r.Tap.Messages(since) {
		if is(m) {
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

// KillAll kills replicas of different services at their steps in the life of one object, from begin on, and starts them again. It returns when all
// kills are made, or when the object's life is over; kills whose step did not come go back.
func KillAll(t testing.TB, object string, targets []Target, begin func(), over func() bool) {
	t.Helper()
	killed, since, all := make([]<-chan struct{}, len(targets)), make([]int, len(targets)), make([]int, len(targets))
	for i, r := range targets {
		t.Logf("%s %s is %s", r.Name, r.Process.Replica, r.Kills)
		since[i], all[i] = len(r.Tap.Messages(0)), len(r.Kills)
		killed[i] = r.arm(object, since[i])
	}
	begin()
	next := func(i int) (more bool) {
		r := &targets[i]
		r.Restart(t)
		if r.Kills = r.Kills[1:]; len(r.Kills) == 0 {
			return false
		}
		killed[i] = r.arm(object, since[i])
		return true
	}
	Eventually(t, "the kills", func() error {
		var waits error
		for i, r := range targets {
			if len(r.Kills) == 0 {
				continue
			}
			select {
			case <-killed[i]:
				if !next(i) {
					continue
				}
			default:
			}
			waits = fmt.Errorf("%s %s waits for %s, and the life of %s is not over", r.Name, r.Process.Replica, targets[i].Kills[0].Step, object)
		}
		if waits != nil && over() {
			return nil
		}
		return waits
	})
	for i := range targets {
		r := &targets[i]
		if len(r.Kills) > 0 && !r.Tap.Clear() {
			<-killed[i]
			next(i)
			r.Tap.Clear()
		}
		for j, k := range r.Kills {
			r.From.missed(t, k, j == 0 && len(r.Kills) == all[i])
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
