package robustness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind of a record.
type Kind string

// Kinds of records.
const (
	// Asked is an actor's: a change was asked for. What is the verb.
	Asked Kind = "asked"
	// Answered is the end of a change that was carried out.
	Answered Kind = "answered"
	// Refused is the end of a change that was refused.
	Refused Kind = "refused"
	// Unanswered is a change of which the actor doesn't know what became of it.
	Unanswered Kind = "unanswered"
	// Expected is what a tenant must come to when all is quiet. What is the phase.
	Expected Kind = "expected"
	// Wrote is a write that the API server took, from its audit log. What is the verb.
	Wrote Kind = "wrote"
	// Told is a fact of the service By.
	Told Kind = "told"
	// Showed is a status. What is the phase.
	Showed Kind = "showed"
	// Struck is a fault's begin. What is the fault, By its target.
	Struck Kind = "struck"
	// Healed is a fault's end.
	Healed Kind = "healed"
	// Left is what was found of a deleted tenant when all was quiet. What is the kind of thing.
	Left Kind = "left"
	// Ended is a tenant when all was quiet. What is the phase it is in.
	Ended Kind = "ended"
	// Phase begins a phase of a run: [Calm], [Strained], or none of them.
	Phase Kind = "phase"
	// Lost is an object that was gone while somebody needed it.
	Lost Kind = "lost"
	// Drifted is an object in a tenant that somebody changed and that was not put right.
	Drifted Kind = "drifted"
	// Leaked is a private key or password that was found where none may be. What is the place.
	Leaked Kind = "leaked"
)

// Record is one thing that somebody did or saw.
type Record struct {
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
	// By is who did it: an actor, a service, a replica's address, a fault's target.
	By string `json:"by,omitempty"`
	// Tenant as namespace/name, its UID and generation as far as known.
	Tenant     string `json:"tenant,omitempty"`
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	What       string `json:"what,omitempty"`
	// Object that was written, as resource/name; Mark is the value of the mark in it, or asked for.
	Object string `json:"object,omitempty"`
	Mark   string `json:"mark,omitempty"`
	// ID of a command or event.
	ID string `json:"id,omitempty"`
	// Ready of a status.
	Ready bool `json:"ready,omitempty"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
}

func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-8s %-22s %s", r.At.Format("15:04:05.000"), r.Kind, r.By, r.What)
	for _, x := range []struct{ name, value string }{
		{"tenant", r.Tenant}, {"uid", r.UID}, {"object", r.Object}, {"mark", r.Mark}, {"id", r.ID}, {"", r.Detail},
	} {
		if x.value != "" {
			fmt.Fprintf(&b, " %s", strings.TrimSpace(x.name+" "+x.value))
		}
	}
	if r.Generation != 0 {
		fmt.Fprintf(&b, " generation %d", r.Generation)
	}
	if r.Ready {
		b.WriteString(" ready")
	}
	return b.String()
}

// History is everything that happened, in a file as it happens, one JSON object a line. It is safe for concurrent use.
type History struct {
	mu   sync.Mutex
	file *os.File
	all  []Record
}

// NewHistory begins a history in a file.
func NewHistory(path string) (*History, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &History{file: f}, nil
}

// Add adds a record; its time is now unless it has one.
func (h *History) Add(r Record) {
	if r.At.IsZero() {
		r.At = time.Now()
	}
	data, _ := json.Marshal(r) // plain data
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, r)
	_, _ = h.file.Write(append(data, '\n'))
}

// Records are all so far, in the order of their times.
func (h *History) Records() []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.all)
	slices.SortStableFunc(all, func(a, b Record) int { return a.At.Compare(b.At) })
	return all
}

// Close closes the file.
func (h *History) Close() error { return h.file.Close() }

// ReadHistory reads what a History wrote.
func ReadHistory(r io.Reader) ([]Record, error) {
	var all []Record
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var record Record
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(all)+1, err)
		}
		all = append(all, record)
	}
	return all, lines.Err()
}
