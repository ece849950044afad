package robustness

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/standin"
)

// How the delay by others is measured: changes of a phase, how often both phases come, and the pause between two changes.
const (
	delayRounds  = 5
	delayChanges = 20
	delayPause   = 250 * time.Millisecond
)

// TestManyTenants is TestRobustness for as many tenants as STOKER_ROBUSTNESS_TENANTS says, with stand-ins for what runs in their pods,
// and a comparison of how long changes take while some tenants hang with how long they take else.
func TestManyTenants(t *testing.T) {
	asked := os.Getenv("STOKER_ROBUSTNESS_TENANTS")
	if asked == "" {
		t.Skip("STOKER_ROBUSTNESS_TENANTS isn't set: make robustness TENANTS=200")
	}
	tenants, err := strconv.Atoi(asked)
	if err != nil {
		t.Fatal(err)
	}
	prove(t, standin.New(nil), func(t *testing.T, s *Site, h *History, seed uint64, whole time.Duration) {
		t.Helper()
		runMany(t, s, h, seed, whole, tenants)
	})
}

// runMany makes tenants, compares, and has actors change tenants while faults strike.
func runMany(t *testing.T, s *Site, h *History, seed uint64, whole time.Duration, tenants int) {
	t.Helper()
	stopWatch, err := Watch(s, h)
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]way{}
	for _, n := range []string{"shop", "desk", "depot", "kiosk", "office"} {
		client, _, err := s.Portal("/" + n)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ways[n] = byPortal{client}
	}
	admin, err := kube.Connect(s.Local.Kubeconfig("admin"), kube.Options{FieldManager: "kubectl"})
	if err != nil {
		t.Fatal(err)
	}
	ways["gitops"] = byKubectl{admin}
	crowd := NewCrowd(s, h, ways, seed, tenants)
	began := time.Now()
	err = crowd.Populate(t.Context())
	t.Logf("%d tenants made in %s", len(crowd.Names())+1, time.Since(began).Round(time.Second))
	if err == nil {
		err = crowd.Compare(t.Context(), delayRounds, delayChanges, delayPause)
	}
	if err != nil {
		t.Error(err)
	}
	running, end := context.WithTimeout(t.Context(), whole)
	defer end()
	var working sync.WaitGroup
	for _, a := range append(slices.Clone(crowd.actors), crowd.hung) {
		working.Go(func() { a.Run(running, actorPause) })
	}
	if err := Run(running, s, Schedule(seed, whole, strikePause, chosen(crowd.Faults())), h); err != nil {
		t.Error(err)
	}
	working.Wait()
	finish(t, s, h, crowd.everybody())
	stopWatch()
	if err := ReadStreams(t.Context(), s, h); err != nil {
		t.Error(err)
	}
	for _, phase := range []string{Calm, Strained} {
		for i, steps := range Steps(h.Records(), phase) {
			t.Logf("%s, round %d: Ready after accepted: %s", phase, i, steps[stepReady])
		}
	}
	more, _ := Delays(h.Records())
	for _, d := range slices.SortedFunc(maps.Keys(more), func(a, b Delayed) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), a.Percentile-b.Percentile)
	}) {
		t.Logf("under strain, %s is later by %v", d, []time.Duration(more[d].rounded()))
	}
}
