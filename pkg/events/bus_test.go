package events_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/natstest"
)

func TestRequestsForEventsThatWereSeenAreForgottenWithTheirInbox(t *testing.T) {
	s := natstest.Start(t)
	certs := s.Connect(t, "certs", "")
	key := events.Tenant("default", "demo")
	consumer := events.Consumer("certs", key.Partition())
	request := fmt.Sprintf(`{"batch":1,"expires":%d,"group":%q}`, time.Minute, events.PriorityGroup)
	for range 100 {
		sub, err := certs.Conn().SubscribeSync(certs.Conn().NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		if err := certs.Conn().PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+events.StreamFacts+"."+consumer, sub.Subject, []byte(request)); err != nil {
			t.Fatal(err)
		}
		if err := certs.AwaitRequestsSeen(t.Context(), events.StreamFacts, consumer); err != nil {
			t.Fatal(err)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
	sub, err := certs.Conn().SubscribeSync(certs.Conn().NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := certs.Conn().PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+events.StreamFacts+"."+consumer, sub.Subject, []byte(request)); err != nil {
		t.Fatal(err)
	}
	if err := certs.AwaitRequestsSeen(t.Context(), events.StreamFacts, consumer); err != nil {
		t.Fatal(err)
	}
	if err := s.Connect(t, "intake", "").Tell(t.Context(), key, 1, "accepted", event.Accepted, event.About{}); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(30 * time.Second)
	if err != nil {
		t.Fatalf("the fact went to an inbox that is gone: %v", err)
	}
	if meta, err := m.Metadata(); err != nil || meta.NumDelivered != 1 {
		t.Errorf("it was delivered before, to an inbox that is gone: %+v, %v", meta, err)
	}
}
