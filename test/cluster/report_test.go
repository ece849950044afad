package cluster

import (
	"fmt"
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
