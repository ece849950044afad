package status

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

func TestTheEndOfATenantIsTold(t *testing.T) {
	t.Parallel()
	s := start(t)
	svc := &svc{bus: s.status, metrics: newMetrics(&metric.Catalogue{}, &metric.Catalogue{}, false)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	loop := &loop.Loop{Bus: s.status, Service: name.ServiceStatus, Handle: svc.handle}
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	key := events.Tenant("default", "gone")
	about := event.About{Namespace: "default", Name: "gone", UID: "u9", Generation: 4}
	removals := event.Removals{About: about, Removed: map[string]int{"workload/Deployment": 1}, Left: []string{"etcd prefix /u9/"}}
	if err := s.intake.Tell(t.Context(), key, 4, "id-1", event.Removed, removals); err != nil {
		t.Fatal(err)
	}

	first := func(stream, subject string) jetstream.Msg {
		t.Helper()
		c, err := s.operator.JetStream().OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Next(jetstream.FetchMaxWait(time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		return m
	}
	for stream, subject := range map[string]string{
		events.StreamFacts: key.FactSubject(name.ServiceStatus, event.Deleted), events.StreamStatus: key.StatusSubject(),
	} {
		m := first(stream, subject)
		e, err := events.Decode(m.Headers(), m.Data())
		if err != nil {
			t.Fatal(err)
		}
		var c event.StatusChanged
		if err := json.Unmarshal(e.Data(), &c); err != nil {
			t.Fatal(err)
		}
		if e.Type() != event.FactType(name.ServiceStatus, event.Deleted) || c.Phase != PhaseDeleted || c.UID != "u9" ||
			c.Removed["workload/Deployment"] != 1 || len(c.Left) != 1 {
			t.Errorf("%s: %s %+v", subject, e.Type(), c)
		}
		if ttl := m.Headers().Get(headerTTL); (ttl != "") != (stream == events.StreamStatus) {
			t.Errorf("%s: kept for %q", subject, ttl)
		}
	}
}
