package events_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestWhatAConnectionMeetsIsCounted(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	certs, intake := s.Connect(t, "certs", ""), s.Connect(t, "intake", "")
	key := events.Tenant("default", "demo")
	if err := intake.Tell(t.Context(), key, 1, "accepted", event.Accepted, event.About{}); err != nil {
		t.Fatal(err)
	}
	c := intake.Counts()
	if c.OutMessages == 0 || c.InMessages == 0 || c.OutBytes == 0 || c.InBytes == 0 {
		t.Errorf("nothing came or was sent: %+v", c)
	}
	if c.Disconnects+c.Reconnects+c.SlowConsumers+c.Refused+c.Errors+c.PublishErrors > 0 {
		t.Errorf("something went wrong: %+v", c)
	}
	if err := certs.Conn().Publish(key.FactSubject("datastore", event.Provisioned), nil); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "a refusal is counted", func() bool { return certs.Counts().Refused == 1 })
	release := make(chan struct{})
	beat := "$KV." + events.BucketLeases + ".certs.beat"
	slow, err := certs.Conn().Subscribe(beat, func(*nats.Msg) { <-release })
	if err == nil {
		err = slow.SetPendingLimits(1, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "a subscription that nobody takes from is counted", func() bool {
		if err := certs.Conn().Publish(beat, nil); err != nil {
			t.Fatal(err)
		}
		return certs.Counts().SlowConsumers > 0
	})
	close(release)
	if c := certs.Counts(); c.Refused != 1 || c.Errors > 0 {
		t.Errorf("counted as another kind of error: %+v", c)
	}
	s.Stop()
	natstest.Eventually(t, "the loss of the connection is counted", func() bool { return intake.Counts().Disconnects == 1 })
	if err := intake.Tell(t.Context(), key, 2, "again", event.Accepted, event.About{}); err == nil {
		t.Error("without a server, a fact is told")
	}
	if n := intake.Counts().PublishErrors; n != 1 {
		t.Errorf("%d events count as not published", n)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the new connection is counted", func() bool { return intake.Counts().Reconnects == 1 })
}
