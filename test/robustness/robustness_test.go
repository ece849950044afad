package robustness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
	"github.com/stoker-k8s/stoker/test/standin"
)

// What a run of `make test-all` takes; `make robustness` says otherwise by the environment.
const (
	fixedSeed = 20261122
	shareFor  = 6 * time.Minute
)

// Pauses between strikes and between an actor's changes, on average.
const (
	strikePause = 8 * time.Second
	actorPause  = 10 * time.Second
)

// driftPatience is how long what drifted in a tenant may take to be put right: the shortest way back to a tenant takes half a minute.
const driftPatience = time.Minute

// TestRobustness runs an installation under faults: STOKER_ROBUSTNESS_FOR (a duration), STOKER_ROBUSTNESS_SEED, and
// STOKER_ROBUSTNESS_FAULTS, parts of the names of the faults that strike, comma-separated; all by default. The history of a run
// that failed is kept.
func TestRobustness(t *testing.T) {
	env.Long(t, "runs for the time that STOKER_ROBUSTNESS_FOR sets; test/faults shows each kind of fault once")
	prove(t, nil, run)
}

// Each of these tests runs the directed schedule of its name.
func TestDirectedAPIServer500(t *testing.T)   { directed(t) }
func TestDirectedReplicasLeave(t *testing.T)  { directed(t) }
func TestDirectedOtherAuthority(t *testing.T) { directed(t) }
func TestDirectedHangingWebhook(t *testing.T) { directed(t) }

// directed runs the directed schedule that the test's name names.
func directed(t *testing.T) {
	t.Helper()
	env.Long(t, "runs a directed schedule for minutes; test/faults shows each kind of fault once")
	d, err := DirectedSchedule(strings.TrimPrefix(t.Name(), "TestDirected"))
	if err != nil {
		t.Fatal(err)
	}
	strikes, err := d.Strikes()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(d.Shows)
	prove(t, nil, func(t *testing.T, s *Site, h *History, seed uint64, _ time.Duration) {
		play(t.Context(), t, s, h, seed, d, strikes)
	})
}

// prove starts an installation, has run do something with it, stops it and checks the history.
func prove(t *testing.T, standIns *standin.Programs, run func(t *testing.T, s *Site, h *History, seed uint64, whole time.Duration)) {
	t.Helper()
	seed, whole := uint64(fixedSeed), shareFor
	var err error
	if s := os.Getenv("STOKER_ROBUSTNESS_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv("STOKER_ROBUSTNESS_FOR"); s != "" {
		if whole, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "stoker-robustness-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d for %s in %s", seed, whole, dir)
	defer func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	}()
	h, err := NewHistory(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s, err := NewSite(t.Context(), dir, env.Root(), standIns)
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	}
	defer stop()
	run(t, s, h, seed, whole)
	stop()
	var tenants []string
	for _, r := range h.Records() {
		if r.Kind == Expected {
			tenants = append(tenants, strings.TrimPrefix(r.Tenant, namespace+"/"))
		}
	}
	if err := ReadAudit(s.AuditLog(), tenants, h); err != nil {
		t.Error(err)
	}
	if err := Leaks(s, h); err != nil {
		t.Error(err)
	}
	if err := s.Unmount(); err != nil {
		t.Error(err)
	}
	for _, crash := range s.Crashes() {
		t.Errorf("a service crashed: %s", crash)
	}
	report(t, s, h.Records(), seed)
}

// run has actors change tenants while faults strike that the seed chooses.
func run(t *testing.T, s *Site, h *History, seed uint64, whole time.Duration) {
	t.Helper()
	running, end := context.WithTimeout(t.Context(), whole)
	defer end()
	play(running, t, s, h, seed, Directed{Changes: whole, Pause: actorPause}, Schedule(seed, whole, strikePause, chosen(Faults())))
}

// play has actors change tenants as a directed schedule says while faults strike, until ctx ends at most, and waits for everything to
// come to rest.
func play(ctx context.Context, t *testing.T, s *Site, h *History, seed uint64, d Directed, strikes []Strike) {
	t.Helper()
	stopWatch, err := Watch(s, h)
	if err != nil {
		t.Fatal(err)
	}
	var actors []*Actor
	for i, n := range []string{"shop", "desk"} {
		client, _, err := s.Portal("/" + n)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		actors = append(actors, newActor(n, byPortal{client}, seed+uint64(i), 2, h))
	}
	admin, err := kube.Connect(s.Local.Kubeconfig("admin"), kube.Options{FieldManager: "kubectl"})
	if err != nil {
		t.Fatal(err)
	}
	actors = append(actors, newActor("gitops", byKubectl{admin}, seed, 2, h))

	stores, _, err := s.Portal("/vault")
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close()
	keeper, err := newKeeper(t.Context(), "vault", stores, s, seed, h)
	if err != nil {
		t.Fatal(err)
	}

	changing, end := context.WithTimeout(ctx, d.Changes)
	defer end()
	var working sync.WaitGroup
	for _, a := range actors {
		a.verbs, a.within = d.Verbs, d.Within
		working.Go(func() { a.Run(changing, d.Pause) })
	}
	working.Go(func() { keeper.Run(changing, d.Pause) })
	if err := Run(ctx, s, strikes, h); err != nil {
		t.Error(err)
	}
	working.Wait()
	keeper.Finish(t.Context())
	finish(t, s, h, actors)
	Drift(t.Context(), s, h, driftPatience)
	stopWatch()
	if err := ReadStreams(t.Context(), s, h); err != nil {
		t.Error(err)
	}
}

// finish has actors end, and notes what everything comes to.
func finish(t *testing.T, s *Site, h *History, actors []*Actor) {
	t.Helper()
	for _, a := range actors {
		a.Finish(t.Context())
	}
	Settle(t.Context(), s, h, patience)
	if err := errors.Join(Remains(t.Context(), s, h), RemainsInDataStores(t.Context(), s, h)); err != nil {
		t.Error(err)
	}
}

// chosen are those of the faults that the environment asks for.
func chosen(faults []Fault) []Fault {
	parts := os.Getenv("STOKER_ROBUSTNESS_FAULTS")
	if parts == "" {
		return faults
	}
	var some []Fault
	for _, f := range faults {
		if slices.ContainsFunc(strings.Split(parts, ","), func(part string) bool { return strings.Contains(f.Name, part) }) {
			some = append(some, f)
		}
	}
	return some
}

// report says what the run was made of, and fails the test by every violation, with the shortest history that shows it.
func report(t *testing.T, s *Site, history []Record, seed uint64) {
	t.Helper()
	kinds, struck, missed := map[Kind]int{}, map[string]int{}, map[string]int{}
	for _, r := range history {
		kinds[r.Kind]++
		switch {
		case r.Kind == Struck && r.Detail == "":
			struck[r.What]++
		case r.Kind == Struck:
			missed[r.What]++
		}
	}
	t.Logf("%d records: %v", len(history), kinds)
	t.Logf("faults: %v", struck)
	t.Logf("faults that could not strike: %v", missed)
	takeovers, err := Takeovers(s, history)
	if err != nil {
		t.Error(err)
	}
	if s.NoDisks != nil {
		t.Log(s.NoDisks)
	}
	t.Logf("changes answered: %s", Answers(history))
	t.Logf("generations at their end after the answer: %s", Ends(history))
	t.Logf("partitions taken over: %s", takeovers)
	if kinds[Wrote] == 0 || kinds[Told] == 0 || kinds[Showed] == 0 || kinds[Answered] == 0 || kinds[Ended] == 0 {
		t.Error("the history lacks what the checks look at")
	}
	violations := Check(history)
	slices.SortStableFunc(violations, func(a, b Violation) int { return cmp.Compare(a.Invariant, b.Invariant) })
	for i, v := range violations {
		var b strings.Builder
		if i < 5 {
			for _, r := range v.Shortest(history) {
				fmt.Fprintf(&b, "\n    %s", r)
			}
		}
		t.Errorf("%s (seed %d)%s", v, seed, b.String())
	}
}
