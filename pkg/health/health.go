// Package health keeps what a process depends on and whether it is there: /readyz tells it, the log tells each change
// once, and why: errors of dependencies have addresses and names that are nothing for strangers.
package health

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sort"
	"sync"
)

// Health is safe for concurrent use. The zero value is not; see New.
type Health struct {
	log  *slog.Logger
	mu   sync.Mutex
	down map[string]bool
	seen map[string]bool
}

// New returns a Health that reports changes to log.
func New(log *slog.Logger) *Health {
	return &Health{log: log, down: map[string]bool{}, seen: map[string]bool{}}
}

// Down says that a dependency is away and why. Only the first word of an outage is logged.
func (h *Health) Down(dependency string, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.down[dependency] {
		h.log.Warn("dependency is away, waiting for it", "dependency", dependency, "cause", cause)
	}
	h.seen[dependency] = true
	h.down[dependency] = true
}

// Up says that a dependency answers.
func (h *Health) Up(dependency string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down[dependency] {
		h.log.Info("dependency is back", "dependency", dependency)
	}
	h.seen[dependency] = true
	delete(h.down, dependency)
}

// Away names the dependencies that are away, sorted.
func (h *Health) Away() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.down))
}

// Handle adds /livez and /readyz to a mux, in the form of the Kubernetes API server's: one line per dependency.
func (h *Health) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		names := make([]string, 0, len(h.seen))
		for d := range h.seen {
			names = append(names, d)
		}
		sort.Strings(names)
		if len(h.down) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		for _, d := range names {
			if h.down[d] {
				fmt.Fprintf(w, "[-]%s is away; the log says why\n", d)
			} else {
				fmt.Fprintf(w, "[+]%s ok\n", d)
			}
		}
		if len(h.down) == 0 {
			fmt.Fprintln(w, "ok")
		}
	})
}
