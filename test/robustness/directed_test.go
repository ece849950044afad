package robustness

import (
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// TestSchedulesNameFaultsThatThereAre holds the directed schedules to what can be struck: faults by their names, replicas that run. It
// shows, too, that they have names of their own, say what they show, and are short.
func TestSchedulesNameFaultsThatThereAre(t *testing.T) {
	s := &Site{}
	for _, service := range name.Services() {
		for i := range replicasEach {
			s.Replicas = append(s.Replicas, &Replica{Service: service, Name: replicaName(i)})
		}
	}
	seen := map[string]bool{}
	for _, d := range DirectedSchedules() {
		t.Run(d.Name, func(t *testing.T) {
			strikes, err := d.Strikes()
			if err != nil {
				t.Fatal(err)
			}
			whole := time.Duration(0)
			for _, strike := range strikes {
				whole += strike.After
				if len(s.only(strike.Of).Replicas) == 0 {
					t.Errorf("%q strikes replicas of %q, and there are none", strike.Fault.Name, strike.Of)
				}
			}
			if whole > 5*time.Minute || len(strikes) == 0 || d.Shows == "" || d.Changes == 0 || d.Pause == 0 || seen[d.Name] {
				t.Errorf("lasts %s: %+v", whole, d)
			}
			seen[d.Name] = true
			if found, err := DirectedSchedule(d.Name); err != nil || found.Shows != d.Shows {
				t.Errorf("found by its name: %+v, %v", found, err)
			}
		})
	}
	if _, err := DirectedSchedule("NoSuchSchedule"); err == nil {
		t.Error("a schedule is found that there is not")
	}
	if _, err := (Directed{Name: "wrong", Plan: []Planned{{Fault: "no such fault"}}}).Strikes(); err == nil {
		t.Error("a fault is taken that there is not")
	}
}
