package robustness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// Phases of a run in which nothing else is done than changes of healthy tenants, by actors whose name doesn't begin with [Stranger].
const (
	// Calm has the stranger's tenants changed as often as under strain, and nothing be wrong with them.
	Calm = "calm"
	// Strained has [hanging] tenants hang that have work to do, and one be poisoned.
	Strained = "strained"
)

// Stranger is how the names of those begin who change tenants that hang or are poisoned.
const Stranger = "stranger"

const (
	// longestDelay is by how much tenants that hang or are poisoned may delay a healthy one.
	longestDelay = time.Second
	// enoughChanges is how many changes a phase must have for its percentiles to say something, enoughRounds how often both phases
	// must come.
	enoughChanges = 20
	enoughRounds  = 3
)

// CheckDelay has healthy tenants delayed by less than a second by others that hang or are poisoned. For every change of a healthy
// tenant that was asked for in a phase it takes the times from intake.accepted of its generation to the first fact of each other
// service about that generation or a later one, and to the first status that shows it Ready. Of each of these steps it compares the
// median and the 90th percentile of a phase under strain with those of the calm phase before it. The median over all such rounds of
// the difference must be below a second: what else the machine does in one round doesn't count. A change that never became Ready
// counts as an hour.
func CheckDelay(history []Record) (found []Violation) {
	var around time.Time
	loads := map[string][]string{}
	for _, r := range history {
		if r.Kind == Phase && r.What != "" {
			load, _, _ := strings.Cut(r.Detail, " ")
			loads[r.What] = append(loads[r.What], load)
			around = r.At
		}
	}
	if around.IsZero() {
		return nil // a run without such phases
	}
	violation := func(format string, args ...any) {
		found = append(found, Violation{"no healthy tenant is delayed by others", "", fmt.Sprintf(format, args...), around})
	}
	more, changes := Delays(history)
	if len(more[Delayed{stepReady, 50}]) < enoughRounds {
		violation("there aren't %d rounds of %d changes each to compare, but %d changes", enoughRounds, enoughChanges, changes)
	}
	for _, d := range slices.SortedFunc(maps.Keys(more), func(a, b Delayed) int { return strings.Compare(a.String(), b.String()) }) {
		if middle := more[d].Percentile(50); len(more[d]) >= enoughRounds && middle >= longestDelay {
			violation("%s is %s later while others hang, in the middle of %v (the machine's load was %v, without %v)",
				d, middle.Round(time.Millisecond), []time.Duration(more[d].rounded()), loads[Strained], loads[Calm])
		}
	}
	return found
}

// Delayed is what is compared: a percentile of the times of a step.
type Delayed struct {
	Step       string
	Percentile int
}

func (d Delayed) String() string {
	return fmt.Sprintf("the %dth percentile of %s", d.Percentile, d.Step)
}

// Delays are, for each round, how much more a phase under strain has than the calm one before it. Steps that few changes have are left
// out. It returns how many changes there were, too.
func Delays(history []Record) (more map[Delayed]Figures, changes int) {
	more = map[Delayed]Figures{}
	calm, strained := Steps(history, Calm), Steps(history, Strained)
	for i := range min(len(calm), len(strained)) {
		changes += len(calm[i][stepReady]) + len(strained[i][stepReady])
		for step, with := range strained[i] {
			without := calm[i][step]
			if len(with) < enoughChanges || len(without) < enoughChanges {
				continue
			}
			for _, p := range []int{50, 90} {
				d := Delayed{step, p}
				more[d] = append(more[d], with.Percentile(p)-without.Percentile(p))
			}
		}
	}
	return more, changes
}

// stepReady is the step to the status that shows a generation Ready.
const stepReady = "Ready"

// never is how long a step took that had no end.
const never = time.Hour

// Steps are, for each phase of a kind, how long the steps took of the changes of healthy tenants that were asked for in it.
func Steps(history []Record, phase string) (all []map[string]Figures) {
	now := ""
	for i, r := range history {
		switch {
		case r.Kind == Phase:
			if now = r.What; now == phase {
				all = append(all, map[string]Figures{})
			}
		case now == phase && r.Kind == Asked && !strings.HasPrefix(r.By, Stranger):
			steps := all[len(all)-1]
			for step, took := range stepsOf(history[i:], r.ID) {
				steps[step] = append(steps[step], took)
			}
		}
	}
	return all
}

// stepsOf are the steps of the change with an id, which is asked for by the first record.
func stepsOf(history []Record, id string) map[string]time.Duration {
	var change Record
	for _, r := range history {
		if r.Kind == Answered && r.ID == id {
			change = r
			break
		}
	}
	if change.UID == "" {
		return nil
	}
	var accepted time.Time
	took := map[string]time.Duration{}
	for _, r := range history {
		if r.UID != change.UID || r.Generation < change.Generation {
			continue
		}
		step := r.By
		switch {
		case r.Kind == Told && r.By == "intake" && r.What == event.Accepted && accepted.IsZero():
			accepted = r.At
			continue
		case r.Kind == Showed && r.Ready:
			step = stepReady
		case r.Kind != Told || r.What == event.Failed || r.What == event.Due || r.By == "intake" || r.By == "status":
			continue
		}
		if _, ok := took[step]; !ok && !accepted.IsZero() {
			took[step] = max(0, r.At.Sub(accepted))
		}
		if step == stepReady && !accepted.IsZero() {
			return took
		}
	}
	took[stepReady] = never
	return took
}

// rounded are the figures in whole milliseconds.
func (f Figures) rounded() Figures {
	var all Figures
	for _, d := range f {
		all = append(all, d.Round(time.Millisecond))
	}
	return all
}

// Percentile is the value that p of a hundred figures don't exceed; 0 of none.
func (f Figures) Percentile(p int) time.Duration {
	if len(f) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(f))
	return sorted[(len(sorted)*p+99)/100-1]
}
