package status

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestLookAt(t *testing.T) {
	t.Parallel()
	of := func(phase string, ready, reconciling bool) state.Status {
		s := state.Status{Phase: phase, Ready: ready}
		if reconciling {
			s.Conditions = []metav1.Condition{{Type: ConditionReconciling, Status: metav1.ConditionTrue}}
		}
		return s
	}
	provisioning, ready, upgrading := of("Provisioning", false, true), of("Ready", true, false), of("Upgrading", true, true)
	tests := map[string]struct {
		last, next state.Status
		old        bool // of an earlier generation
		same, due  bool
		age        time.Duration
		want       look
	}{
		"a detail that changes soon after a write waits for the look": {last: provisioning, next: provisioning, age: 500 * time.Millisecond, want: look{true, 1500 * time.Millisecond}},
		"but not any longer":                                         {last: provisioning, next: provisioning, due: true, age: 500 * time.Millisecond, want: look{Again: lookAgain}},
		"one that changes later is written":                          {last: provisioning, next: provisioning, age: 3 * time.Second, want: look{Again: lookAgain}},
		"so is one that was written in the future, by another clock": {last: provisioning, next: provisioning, age: -time.Minute, want: look{Again: lookAgain}},
		"Ready is written at once, and facts tell the rest":          {last: provisioning, next: ready, age: time.Millisecond},
		"so is a failure that no retry helps":                        {last: provisioning, next: of(PhaseFailed, false, false), age: time.Millisecond},
		"and a pause":                                                {last: provisioning, next: of(PhasePaused, false, false), age: time.Millisecond},
		"another phase is written at once":                           {last: provisioning, next: of(PhaseDeleting, false, true), age: time.Millisecond, want: look{Again: lookAgain}},
		"so is the first word about a generation":                    {last: provisioning, next: provisioning, old: true, age: time.Millisecond, want: look{Again: lookAgain}},
		"and that a tenant that was done is on its way":              {last: of("Ready", true, false), next: of("Ready", true, true), age: time.Millisecond, want: look{Again: lookAgain}},
		"details of a rollout of a tenant that stays Ready wait too": {last: upgrading, next: upgrading, age: time.Second, want: look{true, time.Second}},
		"what doesn't change is looked at slowly":                    {last: provisioning, next: provisioning, same: true, due: true, age: 2 * time.Second, want: look{Again: lookSlow}},
		"and ever more so": {last: provisioning, next: provisioning, same: true, due: true,
			age: 40 * time.Second, want: look{Again: 40 * time.Second}},
		"but never more rarely than once a minute":                      {last: provisioning, next: provisioning, same: true, due: true, age: time.Hour, want: look{Again: lookSlowest}},
		"a tenant that is done is left alone":                           {last: ready, next: ready, same: true, age: time.Hour},
		"a failure that is retried is looked at as long as it is there": {last: upgrading, next: upgrading, same: true, age: time.Minute, want: look{Again: lookSlowest}},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := lookAt(test.last, test.next, !test.old, test.same, test.due, test.age); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// world is what services keep at times after acceptance; announced says whether a fact tells it.
type world struct {
	at        time.Duration
	announced bool
	change    func(*States)
}

// play runs the service's decisions against a course of events and returns the times of its writes.
func play(t *testing.T, course []world, until time.Duration) (writes []time.Duration, last state.Status) {
	t.Helper()
	start := clock.Truncate(time.Second)
	tenant := demo()
	tenant.AcceptedAt = start
	in := States{UID: "u1", Generation: 1}
	var own *time.Duration
	alarm := time.Duration(-1)
	turn := func(now time.Duration, due bool) {
		_, next := Compute(tenant, in, start.Add(now))
		l := look{Again: lookAgain}
		same := false
		if own != nil {
			prev := in.Previous
			same = prev.Phase == next.Phase && prev.Ready == next.Ready && slices.Equal(prev.Conditions, next.Conditions)
			l = lookAt(prev, next, true, same, due, now-*own)
		}
		if !l.Later && !same {
			writes, own, in.Previous = append(writes, now), &now, next
		}
		switch at := now + l.Again; {
		case l.Again == 0:
			alarm = -1
		case alarm < 0 || at < alarm: // the earlier one stays
			alarm = at
		}
	}
	ring := func(before time.Duration) {
		for alarm >= 0 && alarm <= before {
			now := alarm
			alarm = -1
			turn(now, true)
		}
	}
	for _, w := range course {
		ring(w.at)
		w.change(&in)
		if w.announced {
			turn(w.at, false)
		}
	}
	ring(until)
	return writes, in.Previous
}

func TestAProvisioningTakesFewWrites(t *testing.T) {
	t.Parallel()
	all := complete()
	at := func(step, waiting string) *state.State {
		return &state.State{UID: "u1", Generation: 1, Step: step, Wait: state.Wait{Text: waiting}}
	}
	const ms = time.Millisecond
	until := func(n int) []world {
		return []world{
			{0, true, func(*States) {}},
			{50 * ms, true, func(in *States) {
				in.Workload.State, in.Workload.Data.Endpoint = at(event.Exposed, "datastore: user and schema"), all.Workload.Data.Endpoint
			}},
			{100 * ms, true, func(in *States) { in.Datastore = all.Datastore }},
			{200 * ms, true, func(in *States) { in.Certs = all.Certs }},
			{300 * ms, false, func(in *States) {
				in.Workload.State = at(event.Exposed, "Deployment default/demo: its pods to be ready (0 of 2)")
			}},
			{2900 * ms, true, func(in *States) { in.Workload = all.Workload }},
			{3200 * ms, true, func(in *States) { in.Addons = all.Addons }},
		}[:n]
	}
	t.Run("three when it is Ready after three seconds, none afterwards", func(t *testing.T) {
		t.Parallel()
		writes, last := play(t, until(7), time.Hour)
		if want := []time.Duration{0, 2 * time.Second, 3200 * ms}; !slices.Equal(writes, want) || !last.Ready {
			t.Errorf("written at %v, %s", writes, last.Message)
		}
	})
	t.Run("what is waited for is said without a fact that tells it", func(t *testing.T) {
		t.Parallel()
		writes, last := play(t, until(5), time.Hour)
		if want := "workload waits for Deployment default/demo: its pods to be ready (0 of 2)"; last.Message != want || len(writes) != 2 {
			t.Errorf("written at %v, %s", writes, last.Message)
		}
	})
	t.Run("and so is the cause, soon after workload has it", func(t *testing.T) {
		t.Parallel()
		course := append(until(5), world{8300 * ms, false, func(in *States) {
			in.Workload.State = at(event.Exposed, "Deployment default/demo: its pods to be ready (0 of 2): kube-apiserver: ErrImagePull: no such version")
		}})
		writes, last := play(t, course, 30*time.Second)
		if want := "workload waits for Deployment default/demo: its pods to be ready (0 of 2): kube-apiserver: ErrImagePull: no such version"; last.Message != want || len(writes) != 3 {
			t.Errorf("written at %v, %s", writes, last.Message)
		}
	})
	t.Run("a failure that is told is there at once", func(t *testing.T) {
		t.Parallel()
		course := append(until(5), world{3 * time.Minute, true, func(in *States) {
			in.Workload.State = at(event.Exposed, "Deployment default/demo: its pods to be ready (0 of 2)")
			in.Workload.State.Failure = &state.Failure{Reason: "ErrImagePull", Message: "Deployment default/demo is not ready after 3 minutes: " + name.ServiceWorkload}
		}})
		writes, last := play(t, course, 4*time.Minute)
		if len(writes) != 3 || writes[2] != 3*time.Minute || last.Reason != "ErrImagePull" || last.Phase != "Provisioning" {
			t.Errorf("written at %v, %s: %s", writes, last.Phase, last.Reason)
		}
	})
}
