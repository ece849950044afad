package events_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestATurnDoesNotOutliveItsLease(t *testing.T) {
	s := startNATS(t)
	run(t, intake(connect(t, s, "intake", "")))
	registry := prometheus.NewRegistry()
	b, err := events.Connect(events.Config{URL: s.URL(), User: "certs", SeedFile: s.SeedFile("certs"), Replica: "test", Log: testLog(), Metrics: registry})
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
	run(t, &events.Loop{Bus: b, Service: "certs", Handle: func(ctx context.Context, turn *events.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		if first {
			first = false
			close(started)
			<-goOn
		}
		fenced <- events.Held(ctx)
		return events.Held(ctx)
	}})
	apply(t, connect(t, s, events.UserPortal, ""), events.Tenant("default", "demo"), "1")
	<-started
	s.Stop()
	eventually(t, "the lease runs out", func() bool { return partitions() == 0 })
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease is back", func() bool { return partitions() > 0 })
	close(goOn)
	if err := <-fenced; !errors.Is(err, events.ErrFenced) {
		t.Errorf("the turn that began under the old lease may go on: %v", err)
	}
	if err := <-fenced; err != nil {
		t.Errorf("the turn after it may not: %v", err)
	}
}
