package robustness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Figures are durations of one kind, measured in a run.
type Figures []time.Duration

func (f Figures) String() string {
	if len(f) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(f))
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%d, median %s, longest %s", len(f), round(sorted[len(sorted)/2]), round(sorted[len(sorted)-1]))
}

// Answers are how long changes took from when they were asked for to when they were answered.
func Answers(history []Record) (f Figures) {
	asked := map[string]time.Time{}
	for _, r := range history {
		switch r.Kind {
		case Asked:
			asked[r.ID] = r.At
		case Answered, Refused:
			f = append(f, r.At.Sub(asked[r.ID]))
		}
	}
	return f
}

// Ends are how long accepted generations took from the answer to their end, as statuses show it.
func Ends(history []Record) (f Figures) {
	for i, r := range history {
		if r.Kind != Answered || r.UID == "" || r.What == "pause" || r.What == "delete" {
			continue
		}
		for _, s := range history[i:] {
			if s.Kind == Showed && s.UID == r.UID && s.Generation >= r.Generation && (s.Ready || s.What == "Sleeping" || s.What == "Deleted") {
				f = append(f, s.At.Sub(r.At))
				break
			}
		}
	}
	return f
}

// Takeovers are how long it took after a replica was killed or stopped until the other one of its service held every partition,
// leaving out strikes during which the other one was struck as well.
func Takeovers(s *Site, history []Record) (f Figures, err error) {
	held := map[string][]time.Time{} // by replica, when it came to hold all
	for _, r := range s.Replicas {
		if held[r.String()], err = holdsAll(r.Log()); err != nil {
			return nil, err
		}
	}
	for i, r := range history {
		if r.Kind != Struck || r.Detail != "" || r.What != "replica killed" && !strings.HasPrefix(r.What, "replica stopped") {
			continue
		}
		other := sibling(r.By)
		end := r.At.Add(15 * time.Second)
		for _, later := range history[i+1:] {
			if later.Kind == Healed && later.By == r.By && later.What == r.What || later.Kind == Struck && strings.HasPrefix(later.By, other) {
				end = later.At
				break
			}
		}
		for _, at := range held[other] {
			if at.After(r.At) && at.Before(end) {
				f = append(f, at.Sub(r.At))
				break
			}
		}
	}
	return f, nil
}

// sibling is the other replica of a service.
func sibling(replica string) string {
	service, n, _ := strings.Cut(replica, "-")
	return service + "-" + map[string]string{"a": "b", "b": "a"}[n]
}

// holdsAll reads from a replica's log when it came to hold every partition.
func holdsAll(path string) (at []time.Time, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l struct {
			Time time.Time `json:"time"`
			Msg  string    `json:"msg"`
			Held []int     `json:"held"`
		}
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "partitions" && len(l.Held) == name.Partitions {
			at = append(at, l.Time)
		}
	}
	return at, lines.Err()
}
