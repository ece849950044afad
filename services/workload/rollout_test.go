package workload

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// A rollout that was begun by a clock that was a day ahead holds its slot no longer than others.
func TestASlotIsHeldNoLongerForAClockThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &svc{now: time.Now, slots: newSlots(1, func(events.Key) {})}
		it := &turn{
			Turn: &loop.Turn{Key: events.Tenant("default", "ahead")}, s: s, spec: &v1alpha1.TenantControlPlaneSpec{},
			data: state.Workload{ConfigHash: "1", LastUpdate: time.Now().Add(24 * time.Hour)},
		}
		it.holdSlot()
		other := events.Tenant("default", "other")
		if s.slots.take(other) {
			t.Fatal("the slot isn't held")
		}
		time.Sleep(slotTime + time.Second) //nolint:forbidigo // by the clock of synctest
		if !s.slots.take(other) {
			t.Errorf("the slot is held for longer than %s", slotTime)
		}
		s.slots.free(other)
	})
}

func TestBegun(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for what, c := range map[string]struct{ noted, want time.Time }{
		"what began a minute ago":                {now.Add(-time.Minute), now.Add(-time.Minute)},
		"what wasn't noted begins now":           {time.Time{}, now},
		"what a clock noted that was a day fast": {now.Add(24 * time.Hour), now},
	} {
		t.Run(what, func(t *testing.T) {
			if got := begun(c.noted, now); !got.Equal(c.want) {
				t.Errorf("%s, not %s", got, c.want)
			}
		})
	}
}
