package partition

import (
	"context"
	"fmt"
	"testing"
)

func TestEachFollowerSeesWhatItGainedAndWhatStayed(t *testing.T) {
	h := Of(1, 2)
	a, b := h.Follow(), h.Follow()
	see := func(f *Follower, want string) {
		t.Helper()
		<-f.Changed()
		m, changed := f.Next()
		if got := fmt.Sprint(m); got != want || !changed {
			t.Errorf("got %s, %t, want %s", got, changed, want)
		}
		select {
		case <-f.Changed():
			t.Error("it is told of the same change again")
		default:
		}
	}
	see(a, "{[1 2] [1 2] []}")
	h.Hold([]int{2, 3})
	see(a, "{[2 3] [3] [2]}")
	see(b, "{[2 3] [2 3] []}")
	h.Hold([]int{2, 3}) // as they are
	if m, changed := a.Next(); changed {
		t.Errorf("nothing changed, and %v was told", m)
	}
	h.Hold([]int{2})
	h.Hold([]int{2, 3})
	see(a, "{[2 3] [3] [2]}") // lost and gained again, before anybody looked
	h.Hold(nil)
	see(a, "{[] [] []}")
	see(b, "{[] [] []}")
}

func TestMovesEndWithTheirContext(t *testing.T) {
	h := Of()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen []string
	for m := range h.Moves(ctx) {
		if seen = append(seen, fmt.Sprint(m.Gained)); len(seen) == 3 {
			cancel()
			continue
		}
		h.Hold([]int{len(seen)})
	}
	if got := fmt.Sprint(seen); got != "[[] [1] [2]]" {
		t.Errorf("got %s", got)
	}
}
