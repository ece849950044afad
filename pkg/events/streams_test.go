package events_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/natstest"
)

func TestProvisionPutsRightWhatWasChangedByHand(t *testing.T) {
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	st, err := in.JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.Connect(t, events.UserOperator, "").JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	c, err := seen.Consumer(t.Context(), "certs-3")
	if err != nil {
		t.Fatal(err)
	}
	want, wantStream := c.CachedInfo().Config, st.CachedInfo().Config
	cfg := want
	cfg.AckWait, cfg.MaxAckPending, cfg.FilterSubjects = time.Hour, 1, []string{"stoker.fact.3.*.*.intake.accepted"}
	if _, err := st.UpdateConsumer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := st.DeleteConsumer(t.Context(), "workload-7"); err != nil {
		t.Fatal(err)
	}
	changed := wantStream
	changed.MaxAge = time.Minute
	changed.Duplicates = time.Second
	if _, err := in.JetStream().UpdateStream(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := in.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := func(durable string) jetstream.ConsumerConfig {
		t.Helper()
		c, err := seen.Consumer(t.Context(), durable)
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().Config
	}
	if g := got("certs-3"); g.AckWait != want.AckWait || g.MaxAckPending != want.MaxAckPending || len(g.FilterSubjects) != len(want.FilterSubjects) {
		t.Errorf("consumer certs-3 is %+v, want %+v", g, want)
	}
	got("workload-7")
	info, err := st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Config.MaxAge != wantStream.MaxAge || info.Config.Duplicates != wantStream.Duplicates {
		t.Errorf("stream is %+v, want %+v", info.Config, wantStream)
	}
}
