package robustness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// changes is the phase of a round, with changes each of which takes as long as took says; that of addons is half of it.
func changes(round int, phase, actor string, n int, took func(i int) time.Duration) (history []Record) {
	at := time.Date(2026, 1, 1, 2*round, 0, 0, 0, time.UTC)
	if phase == Strained {
		at = at.Add(time.Hour)
	}
	generation := int64(2*at.Hour() + 2)
	history = append(history, Record{At: at, Kind: Phase, What: phase})
	for i := range n {
		id, uid, tenant := fmt.Sprintf("%d-%s-%s-%d", round, phase, actor, i), fmt.Sprint("u", i), fmt.Sprint("default/a", i)
		at = at.Add(time.Second)
		record := func(after time.Duration, kind Kind, by, what string) {
			r := Record{At: at.Add(after), Kind: kind, By: by, Tenant: tenant, What: what}
			if kind == Asked || kind == Answered {
				r.ID = id
			}
			if kind != Asked {
				r.UID, r.Generation = uid, generation
			}
			r.Ready = kind == Showed
			history = append(history, r)
		}
		record(0, Asked, actor, verbAddons)
		record(10*time.Millisecond, Told, "intake", "accepted")
		record(15*time.Millisecond, Answered, actor, verbAddons)
		record(10*time.Millisecond+took(i)/2, Told, "addons", "applied")
		record(10*time.Millisecond+took(i), Showed, "status", "Ready")
	}
	return append(history, Record{At: at.Add(time.Minute), Kind: Phase})
}

func TestCheckDelay(t *testing.T) {
	steady := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	const usual = 200 * time.Millisecond
	// rounds with as many changes, each; strained says how long they take under strain.
	rounds := func(rounds, n int, strained func(round int) func(i int) time.Duration) (history []Record) {
		for round := range rounds {
			history = append(history, changes(round, Calm, "shop", n, steady(usual))...)
			history = append(history, changes(round, Strained, "shop", n, strained(round))...)
		}
		return history
	}
	always := func(d time.Duration) func(int) func(int) time.Duration {
		return func(int) func(int) time.Duration { return steady(d) }
	}
	for sentence, c := range map[string]struct {
		history []Record
		want    []string
	}{
		"a run without phases isn't judged":  {[]Record{{Kind: Told}}, nil},
		"less than a second more is allowed": {rounds(3, 20, always(usual+999*time.Millisecond)), nil},
		"a second more is not": {
			rounds(3, 20, always(usual+time.Second)),
			[]string{"the 50th percentile of Ready is 1s later while others hang", "the 90th percentile of Ready is 1s later"},
		},
		"one service's step is judged by itself": {
			rounds(3, 20, always(4*time.Second)),
			[]string{
				"the 50th percentile of Ready", "the 90th percentile of Ready", "the 50th percentile of addons", "the 90th percentile of addons",
			},
		},
		"every eighth that waits is found": {
			rounds(3, 24, func(int) func(int) time.Duration {
				return func(i int) time.Duration { return []time.Duration{3 * time.Second, 0, 0, 0, 0, 0, 0, 0}[i%8] }
			}),
			[]string{"the 90th percentile of Ready", "the 90th percentile of addons"},
		},
		"one round of a busy machine is passed over": {
			rounds(3, 20, func(round int) func(int) time.Duration {
				return steady([]time.Duration{usual, time.Minute, usual}[round])
			}), nil,
		},
		"tenants that hang themselves don't count": {
			slices.Concat(rounds(3, 20, always(usual)), changes(2, Strained, Stranger, 20, steady(time.Minute))[1:41]), nil,
		},
		"a healthy tenant that never becomes Ready is found": {
			withoutReady(rounds(3, 20, always(usual)), Strained), []string{"the 50th percentile of Ready is 59m", "the 90th percentile of Ready"},
		},
		"what can't be judged isn't passed over": {
			rounds(3, 10, always(0)), []string{"there aren't 3 rounds of 20 changes each to compare, but 60 changes"},
		},
		"one round isn't enough": {
			rounds(1, 20, always(0)), []string{"there aren't 3 rounds"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			found := CheckDelay(sorted(t, c.history))
			var said []string
			for _, v := range found {
				said = append(said, v.Message)
			}
			all := strings.Join(said, "\n")
			for _, want := range c.want {
				if !strings.Contains(all, want) {
					t.Errorf("nothing says %q", want)
				}
			}
			if len(found) != len(c.want) {
				t.Errorf("found, instead of %d:\n%s", len(c.want), all)
			}
		})
	}
}

// withoutReady leaves out the statuses of a kind of phase, and what would come to an end in the phases after it.
func withoutReady(history []Record, phase string) (some []Record) {
	now := ""
	for i, r := range history {
		if r.Kind == Phase {
			now = r.What
		}
		if r.UID != "" { // a tenant for each phase
			r.UID += fmt.Sprint(r.Generation)
		}
		if r.Kind != Showed || now != phase {
			some = append(some, history[i])
			some[len(some)-1].UID = r.UID
		}
	}
	return some
}

// sorted puts records in order, as a History does.
func sorted(t *testing.T, records []Record) []Record {
	t.Helper()
	h, err := NewHistory(t.TempDir() + "/history.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, r := range records {
		h.Add(r)
	}
	return h.Records()
}
