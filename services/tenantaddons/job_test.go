package tenantaddons

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/release"
)

// TestJobs has jobs of two releases go on, be given up and be asked for by a tenant's turns.
func TestJobs(t *testing.T) {
	woken := make(chan struct{}, 10)
	s := &svc{jobs: make(chan struct{}, 2), hooked: make(chan struct{}, 1), wake: func(events.Key, loop.Wake) { woken <- struct{}{} }}
	c := &tenant{done: map[types.NamespacedName]*job{}}
	w := &work{svc: s, in: c, turn: &loop.Turn{Key: events.Tenant("ns", "shop")}, now: time.Now()}
	a, b := jobOf{types.NamespacedName{Name: "a"}, "1"}, jobOf{types.NamespacedName{Name: "b"}, "1"}
	failed := errors.New("refused")
	ended, hurry := context.WithCancel(t.Context()) // a turn that has no time
	hurry()

	t.Run("a quick one is concluded in its turn, and wakes nobody", func(t *testing.T) {
		in := &release.Installed{Revision: 7}
		got, err := w.do(t.Context(), a, false, func(context.Context) (*release.Installed, error) { return in, nil })
		if got != in || err != nil || c.job != nil || len(s.jobs) != 0 {
			t.Errorf("%v, %v, %v", got, err, c.job)
		}
		if _, err := w.do(t.Context(), a, true, func(context.Context) (*release.Installed, error) { return nil, failed }); !errors.Is(err, failed) {
			t.Errorf("%v", err)
		}
		if len(woken)+len(s.hooked) != 0 {
			t.Error("it wakes")
		}
	})
	t.Run("what came of a long one is kept for whoever asks, and others go on", func(t *testing.T) {
		free := make(chan struct{})
		if _, err := w.do(ended, a, false, func(context.Context) (*release.Installed, error) { <-free; return &release.Installed{Revision: 8}, nil }); !errors.Is(err, errBusy) {
			t.Errorf("%v", err)
		}
		none := func(context.Context) (*release.Installed, error) { return nil, nil }
		if _, err := w.do(t.Context(), b, false, none); !errors.Is(err, errBusy) {
			t.Errorf("two at a time: %v", err)
		}
		close(free)
		<-woken
		if _, err := w.do(t.Context(), b, false, none); err != nil {
			t.Errorf("%v", err)
		}
		again := func(context.Context) (*release.Installed, error) { t.Error("it is done twice"); return nil, nil }
		if got, err := w.do(t.Context(), a, false, again); err != nil || got == nil || got.Revision != 8 {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("one that is asked for otherwise is ended", func(t *testing.T) {
		_, err := w.do(ended, a, false, func(ctx context.Context) (*release.Installed, error) { <-ctx.Done(); return nil, ctx.Err() })
		if !errors.Is(err, errBusy) {
			t.Errorf("%v", err)
		}
		if _, err := w.do(t.Context(), jobOf{a.release, "2"}, false, nil); !errors.Is(err, errBusy) {
			t.Errorf("%v", err)
		}
		<-woken
		got, err := w.do(t.Context(), a, false, func(context.Context) (*release.Installed, error) { return &release.Installed{Revision: 9}, nil })
		if err != nil || got == nil || got.Revision != 9 {
			t.Errorf("what was ended is taken for an answer: %v, %v", got, err)
		}
	})
	t.Run("hooks leave places to others", func(t *testing.T) {
		s.hooked <- struct{}{}
		if j := w.start(t.Context(), a, true, nil); j != nil || len(s.jobs) != 0 {
			t.Errorf("%v, %d", j, len(s.jobs))
		}
		<-s.hooked
	})
	t.Run("the end of the connection ends what goes on", func(t *testing.T) {
		j := w.start(t.Context(), a, false, func(ctx context.Context) (*release.Installed, error) { <-ctx.Done(); return nil, ctx.Err() })
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		j.cancel()
		<-j.done
		if j := w.start(t.Context(), b, false, nil); j != nil || len(s.jobs) != 0 {
			t.Error("a closed connection begins something")
		}
	})
}
