package robustness

import (
	"fmt"
	"slices"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// Directed is a schedule that is written down instead of drawn: the faults that show one defect.
type Directed struct {
	// Name is the end of the test's name, TestDirected….
	Name string
	// Shows says which defect it showed, and which check finds it.
	Shows string
	// Changes is how long actors change tenants, Pause for how long they wait between changes, on average. Then what is there is left
	// alone, so that nothing but the services' own doing puts things right.
	Changes, Pause time.Duration
	// Verbs are what actors do with tenants that are there; all if empty.
	Verbs []string
	// Within is how soon changes must be answered; 0 for as soon as in any run.
	Within time.Duration
	// Plan are the faults.
	Plan []Planned
}

// Planned is one entry of a directed schedule, as a [Strike] is of one that was drawn.
type Planned struct {
	After time.Duration // the one before
	Fault string        // its name
	Of    string        // replicas' names begin so that are struck; all if empty
	For   time.Duration
}

// DirectedSchedules that there are.
func DirectedSchedules() []Directed {
	const pause = 4 * time.Second
	return []Directed{
		{
			Name:    "APIServer500",
			Shows:   "Work met by 500s for longer than its retries lasted was buried, and nothing took it up again: CheckEnds, CheckAccepted.",
			Changes: 50 * time.Second, Pause: pause,
			Plan: []Planned{{After: 25 * time.Second, Fault: "API server answers 500 to all", For: 150 * time.Second}},
		},
		{
			Name: "ReplicasLeave",
			Shows: "An event that waited, here for a DataStore, was given up after it had moved between replicas twenty times, though no turn " +
				"on it had ended a replica: CheckEnds.",
			Changes: 40 * time.Second, Pause: pause, Verbs: []string{event.Apply}, // a deletion leaves behind what it can't reach
			Plan: slices.Concat(
				[]Planned{
					{After: 4 * time.Second, Fault: "etcd of the DataStore stopped and continued", For: 170 * time.Second},
					{After: 20 * time.Second},
				},
				slices.Repeat([]Planned{
					{Fault: "replica leaves and joins", Of: "datastore-a", For: time.Second}, {After: 4 * time.Second},
					{Fault: "replica leaves and joins", Of: "datastore-b", For: time.Second}, {After: 4 * time.Second},
				}, 14),
			),
		},
		{
			Name: "OtherAuthority",
			Shows: "A kubeconfig that addons read while it named another authority was used for good, so that nothing was put right in that " +
				"tenant any more: CheckDrift.",
			Changes: 30 * time.Second, Pause: pause, Verbs: []string{event.Apply},
			Plan: []Planned{
				{After: 100 * time.Second, Fault: "way to the API server silent", Of: "certs-a", For: 60 * time.Second},
				{Fault: "way to the API server silent", Of: "certs-b", For: 60 * time.Second}, // who would make new ones
				{After: time.Second, Fault: "kubeconfigs of tenants name another authority", For: 40 * time.Second},
				{After: time.Second, Fault: "replica killed", Of: "addons-a"},
				{After: time.Second, Fault: "replica killed", Of: "addons-b"},
			},
		},
		{
			Name: "HangingWebhook",
			Shows: "A command that a webhook held up was tried again without end, and every other command of its partition waited behind it: " +
				"CheckAnswers.",
			Changes: 80 * time.Second, Pause: pause, Within: 100 * time.Second,
			Plan: []Planned{{After: 30 * time.Second, Fault: "a webhook hangs", For: 170 * time.Second}},
		},
	}
}

// DirectedSchedule finds a directed schedule by its name.
func DirectedSchedule(name string) (Directed, error) {
	for _, d := range DirectedSchedules() {
		if d.Name == name {
			return d, nil
		}
	}
	return Directed{}, fmt.Errorf("there is no directed schedule %q", name)
}

// Strikes are the schedule's, for [Run].
func (d Directed) Strikes() (all []Strike, err error) {
	after := time.Duration(0)
	for _, p := range d.Plan {
		after += p.After
		if p.Fault == "" { // a pause
			continue
		}
		faults := Faults()
		i := slices.IndexFunc(faults, func(f Fault) bool { return f.Name == p.Fault })
		if i < 0 {
			return nil, fmt.Errorf("schedule %s: there is no fault %q", d.Name, p.Fault)
		}
		all = append(all, Strike{After: after, Fault: faults[i], For: p.For, Of: p.Of})
		after = 0
	}
	return all, nil
}
