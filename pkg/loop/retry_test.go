package loop_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/internal/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestATurnDoesNotOutliveItsLease(t *testing.T) {
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
	first := true
	run(t, &loop.Loop{Bus: b, Service: "certs", Metrics: registry, Handle: func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		if first {
			first = false
			close(started)
			<-goOn
		}
		fenced <- fence.Check(ctx)
		return fence.Check(ctx)
	}})
	apply(t, s.Connect(t, events.UserPortal, ""), events.Tenant("default", "demo"), "1")
	<-started
	s.Stop()
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
