package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

// puller is one call of [events.Bus.Pull] on a consumer of certs, whose events it acknowledges.
type puller struct {
	bus    *events.Bus
	opened chan time.Time
	ids    chan string
	ended  chan error
	stop   func()
}

func startPull(t *testing.T, s *natstest.Server, key events.Key) *puller {
	t.Helper()
	return startPullExpiring(t, s, key, events.PullExpiry)
}

func startPullExpiring(t *testing.T, s *natstest.Server, key events.Key, expiry time.Duration) *puller {
	t.Helper()
	bus := s.Connect(t, "certs", "")
	ctx, cancel := context.WithCancel(t.Context())
	p := &puller{bus: bus, opened: make(chan time.Time, 1), ids: make(chan string, 1000), ended: make(chan error, 1), stop: cancel}
	var wg sync.WaitGroup
	wg.Go(func() {
		p.ended <- bus.PullExpiring(ctx, expiry, events.StreamFacts, events.Consumer("certs", key.Partition()),
			func(created time.Time) { p.opened <- created },
			func(m *nats.Msg) {
				p.ids <- m.Header.Get(nats.MsgIdHdr)
				_ = m.Ack()
			})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return p
}

// tell publishes facts of intake's about a tenant.
func tell(t *testing.T, s *natstest.Server, key events.Key, ids ...string) {
	t.Helper()
	in := s.Connect(t, "intake", "")
	for _, id := range ids {
		if err := in.Tell(t.Context(), key, 1, id, event.Accepted, event.About{}); err != nil {
			t.Fatal(err)
		}
	}
}

// want waits for events in their order.
func (p *puller) want(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		select {
		case got := <-p.ids:
			if got != id {
				t.Fatalf("event %s, want %s", got, id)
			}
		case err := <-p.ended:
			t.Fatalf("it ended before event %s: %v", id, err)
		case <-time.After(3 * time.Minute):
			t.Fatalf("event %s doesn't come", id)
		}
	}
}

func (p *puller) wantEnd(t *testing.T, want ...error) {
	t.Helper()
	err := natstest.Receive(t, "it ends", p.ended)
	if !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
		t.Errorf("it ended with %v, want %v", err, want)
	}
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}

func TestPullBringsMoreThanOneRequestDoes(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	key := events.Tenant("default", "demo")
	ids := numbered(200)
	tell(t, s, key, ids[:150]...)
	p := startPull(t, s, key)
	p.want(t, ids[:150]...)
	tell(t, s, key, ids[150:]...)
	p.want(t, ids[150:]...)
	p.stop()
	p.wantEnd(t, nil)
}

func TestPullGoesOnWhenARequestExpires(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	key := events.Tenant("default", "demo")
	p := startPullExpiring(t, s, key, 100*time.Millisecond)
	<-p.opened
	sent := p.bus.Conn().Stats().OutMsgs
	natstest.Eventually(t, "requests are made anew", func() bool { return p.bus.Conn().Stats().OutMsgs > sent+10 })
	tell(t, s, key, "after")
	p.want(t, "after")
}

// What a sender writes into headers is no word of the server's.
func TestAnEventMayHaveTheHeadersOfAStatus(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	key := events.Tenant("default", "demo")
	m := nats.NewMsg(key.FactSubject("intake", event.Accepted))
	m.Header.Set(nats.MsgIdHdr, "strange")
	m.Header.Set("Status", "409")
	m.Header.Set("Description", "Consumer Deleted")
	m.Header.Set("Nats-Pin-Id", "mine")
	if _, err := s.Connect(t, "intake", "").JetStream().PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	tell(t, s, key, "next")
	startPull(t, s, key).want(t, "strange", "next")
}

// A replica that is stopped keeps its connection, its inbox and its requests, which came before those of the replica that took over.
func TestPullIsServedThoughStoppedReplicasAskedBefore(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	key := events.Tenant("default", "demo")
	stopped := s.Connect(t, "certs", "")
	sub, err := stopped.Conn().SubscribeSync(stopped.Conn().NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	consumer := events.Consumer("certs", key.Partition())
	request := fmt.Sprintf(`{"batch":64,"expires":%d,"group":%q}`, time.Hour, events.PriorityGroup)
	for range 2 {
		if err := stopped.Conn().PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+events.StreamFacts+"."+consumer, sub.Subject, []byte(request)); err != nil {
			t.Fatal(err)
		}
	}
	if err := stopped.AwaitRequestsSeen(t.Context(), events.StreamFacts, consumer); err != nil {
		t.Fatal(err)
	}
	p := startPull(t, s, key)
	<-p.opened
	tell(t, s, key, "event")
	p.want(t, "event")
	natstest.Eventually(t, "the stopped replica is sent a message, without which this shows nothing", func() bool {
		n, _, err := sub.Pending()
		return err == nil && n > 0
	})
}

func TestPullEnds(t *testing.T) {
	t.Parallel()
	key := events.Tenant("default", "demo")
	consumer := events.Consumer("certs", key.Partition())
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s *natstest.Server) error
		want []error
	}{
		{"when its consumer is deleted", func(t *testing.T, s *natstest.Server) error {
			return s.Connect(t, "intake", "").JetStream().DeleteConsumer(t.Context(), events.StreamFacts, consumer)
		}, []error{jetstream.ErrConsumerDeleted}},
		{"when its stream is deleted", func(t *testing.T, s *natstest.Server) error {
			return s.Connect(t, "intake", "").JetStream().DeleteStream(t.Context(), events.StreamFacts)
		}, []error{jetstream.ErrConsumerDeleted}},
		{"when the server was away", func(t *testing.T, s *natstest.Server) error {
			s.Stop()
			return s.Restart(t.Context())
		}, []error{events.ErrPullLost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := natstest.Start(t)
			p := startPull(t, s, key)
			tell(t, s, key, "before")
			p.want(t, "before")
			if err := c.do(t, s); err != nil {
				t.Fatal(err)
			}
			p.wantEnd(t, c.want...)
		})
	}
}

func TestPullOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	key := events.Tenant("default", "demo")
	if err := in.JetStream().DeleteConsumer(t.Context(), events.StreamFacts, events.Consumer("certs", key.Partition())); err != nil {
		t.Fatal(err)
	}
	startPull(t, s, key).wantEnd(t, jetstream.ErrConsumerNotFound)
	if err := in.JetStream().DeleteStream(t.Context(), events.StreamFacts); err != nil {
		t.Fatal(err)
	}
	startPull(t, s, key).wantEnd(t, jetstream.ErrStreamNotFound)
}
