package loop_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestATurnDoesNotOutliveItsLease(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	registry := prometheus.NewRegistry()
	b, err := events.Connect(events.Config{URL: s.URL(), User: "certs", SeedFile: s.SeedFile("certs"), Replica: "test", Log: natstest.Log()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	partitions := func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "stoker_partitions_held" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	started, goOn, fenced := make(chan struct{}), make(chan struct{}), make(chan error, 100)
	first, clock := true, loop.NewClock()
	run(t, &loop.Loop{Bus: b, Service: "certs", Metrics: registry, Handle: func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		if first {
			first = false
			close(started)
			<-goOn
		}
		err := turn.Done(ctx, loop.Outcome{Step: event.Issued})
		fenced <- err
		return err
	}}, setClock(clock))
	apply(t, s.Connect(t, events.UserPortal, ""), events.Tenant("default", "demo"), "1")
	<-started
	s.Stop()
	clock.Step(loop.LeaseTTL)
	natstest.Eventually(t, "the lease runs out", func() bool { return partitions() == 0 })
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the lease is back", func() bool { return partitions() > 0 })
	close(goOn)
	if err := <-fenced; !errors.Is(err, fence.ErrFenced) {
		t.Errorf("the turn that began under the old lease may go on: %v", err)
	}
	if err := <-fenced; err != nil {
		t.Errorf("the turn after it may not: %v", err)
	}
}

// Twenty tenants whose servers hang have a quarter of the places at most, so that one that is well finds one at once.
func TestTenantsThatHangDoNotKeepOthersWaiting(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	const hanging = 20
	var mu sync.Mutex
	tried := map[string]bool{}
	failed, hangs, goOn, healthy := make(chan struct{}, hanging), make(chan struct{}, hanging), make(chan struct{}), make(chan struct{}, 1)
	run(t, &loop.Loop{Bus: s.Connect(t, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		if turn.Key.Name == "healthy" {
			healthy <- struct{}{}
			return nil
		}
		mu.Lock()
		again := tried[turn.Key.Name]
		tried[turn.Key.Name] = true
		mu.Unlock()
		if !again {
			failed <- struct{}{}
			return &intent.Unavailable{Err: errors.New("the tenant's API doesn't answer")}
		}
		hangs <- struct{}{}
		select {
		case <-ctx.Done():
		case <-goOn:
		}
		return nil
	}})
	portal := s.Connect(t, events.UserPortal, "")
	for i := range hanging {
		apply(t, portal, events.Tenant("default", fmt.Sprintf("hangs%d", i)), fmt.Sprintf("hangs%d", i))
	}
	for range hanging {
		<-failed
	}
	for range 4 {
		<-hangs
	}
	apply(t, portal, events.Tenant("default", "healthy"), "healthy")
	<-healthy
	if n := len(hangs); n > 0 {
		t.Errorf("%d tenants that hang have a place beside four others", n)
	}
	close(goOn)
}
