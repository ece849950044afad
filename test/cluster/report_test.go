package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// report collects what was measured. It is safe for concurrent use.
type report struct {
	mu    sync.Mutex
	lines []string
}

// took notes how long something took.
func (r *report) took(t *testing.T, since time.Time, what string, args ...any) {
	t.Helper()
	r.line(t, fmt.Sprintf("%-64s %6.1f s", fmt.Sprintf(what, args...), time.Since(since).Seconds()))
}

// median notes the median of twenty times of something that must succeed.
func (r *report) median(t *testing.T, what string, do func() error) {
	t.Helper()
	var all []time.Duration
	for range 20 {
		begun := time.Now()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	r.line(t, fmt.Sprintf("%-64s %6.1f ms (median of %d)", what, float64(all[len(all)/2].Microseconds())/1000, len(all)))
}

func (r *report) line(t *testing.T, text string) {
	t.Helper()
	t.Log(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, text)
}

func (r *report) log(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Log("measured:\n" + strings.Join(r.lines, "\n"))
}
