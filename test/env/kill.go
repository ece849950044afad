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
	// Index of the step among the steps that make or remove the object.
	Index          int
	Removed, After bool
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

// Name is a name of objects for this kill alone.
func (k Kill) Name() string {
	return fmt.Sprintf("kill-%s-%d-%s", phase(k.Removed, "del", "new"), k.Index, phase(k.After, "after", "before"))
}

func phase(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
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
				left.all = append(left.all, Kill{Step: s, Index: index, Removed: i == 1, After: after})
			}
		}
	}
	return left
}

// Take takes the next kill that may be made, any if may is nil; false when there is none.
func (k *Kills) Take(may func(Kill) bool) (Kill, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.all, func(next Kill) bool { return may == nil || may(next) })
	if i < 0 {
		return Kill{}, false
	}
	next := k.all[i]
	k.all = slices.Delete(k.all, i, i+1)
	return next, true
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

// Tenant is the key of a tenant that the replica holds; its name begins and ends as given.
func (r Replica) Tenant(t testing.TB, prefix, suffix string) (key events.Key) {
	t.Helper()
	Eventually(t, r.Name+" "+r.Process.Replica+" to hold a tenant", func() error {
		held := r.Held(t)
		for i := range 100 * name.Partitions {
			if key = events.Tenant("default", fmt.Sprintf("%s-%d%s", prefix, i, suffix)); slices.Contains(held, key.Partition()) {
				return nil
			}
		}
		return errors.New("it holds nothing")
	})
	return key
}
