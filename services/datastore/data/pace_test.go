package data

import (
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestPace(t *testing.T) {
	t.Parallel()
	o, began := &mover{}, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	v := &state.Move{Of: 10_000}
	for i, step := range []struct {
		phase         string
		seconds, keys int64
		entered, tell bool
		rate, left    int64
	}{
		{state.MovePreparing, 0, 0, false, false, 0, 0},
		{state.MoveCopying, 1, 100, true, true, 0, 0},        // one look says nothing of a rate
		{state.MoveCopying, 6, 1_100, false, false, 200, 45}, // 5 s
		{state.MoveCopying, 11, 3_100, false, false, 300, 23},
		{state.MoveCopying, 11, 3_200, false, false, 300, 23}, // too soon after
		{state.MoveCopying, 31, 9_100, false, true, 300, 3},
		{state.MoveCopying, 36, 12_100, false, false, 450, 0}, // more than there were
		{state.MoveCopying, 41, 10, false, false, 0, 0},       // anew
		{state.MoveFollowing, 46, 10_000, true, true, 0, 0},
		{state.MoveFollowing, 90, 10_000, false, false, 0, 0},
		{state.MoveCopying, 91, 0, true, true, 0, 0},
	} {
		v.Phase, v.Keys = step.phase, step.keys
		tell := o.progress(began.Add(time.Duration(step.seconds)*time.Second), v, step.entered)
		if tell != step.tell || v.KeysPerSecond != step.rate || v.SecondsLeft != step.left {
			t.Errorf("step %d: tell %v, %d a second, %d s left", i, tell, v.KeysPerSecond, v.SecondsLeft)
		}
	}
}
