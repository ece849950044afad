package events_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestRequestsForEventsThatWereSeenAreForgottenWithTheirInbox(t *testing.T) {
	t.Parallel()
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
	m := natstest.Next(t, "the fact comes, and to no inbox that is gone", sub)
	if meta, err := m.Metadata(); err != nil || meta.NumDelivered != 1 {
		t.Errorf("it was delivered before, to an inbox that is gone: %+v, %v", meta, err)
	}
}

func TestARequestTimeoutBoundsEveryQuestion(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	cfg, key := s.Config(name.ServiceIntake, ""), events.Tenant("default", "demo")
	cfg.RequestTimeout = time.Nanosecond
	b := natstest.ConnectWith(t, cfg)
	for what, ask := range map[string]func() error{
		"JetStream": func() error {
			_, err := b.JetStream().Stream(t.Context(), events.StreamFacts)
			return err
		},
		"CreateBucket": func() error { return b.CreateBucket(t.Context(), key) },
		"Forget":       func() error { return b.Forget(t.Context(), key) },
		"ReadState": func() error {
			_, _, err := b.ReadState(t.Context(), key, events.KeySpec)
			return err
		},
		"ReadStateOfLeader": func() error {
			_, _, err := b.ReadStateOfLeader(t.Context(), key, events.KeySpec)
			return err
		},
		"WriteState": func() error {
			_, err := b.WriteState(t.Context(), key, events.KeySpec, &state.State{}, 0)
			return err
		},
		"Tell": func() error { return b.Tell(t.Context(), key, 1, "id", event.Accepted, event.About{}) },
		"LastFact": func() error {
			_, err := b.LastFact(t.Context(), key.FactSubject(name.ServiceIntake, event.Accepted))
			return err
		},
		"DeadLetters": func() error {
			_, _, err := b.DeadLetters(t.Context(), event.DeadFilter{}, 0, 1)
			return err
		},
		"DropDeadLetter": func() error { return b.DropDeadLetter(t.Context(), 1) },
		"EraseCommand":   func() error { return b.EraseCommand(t.Context(), 1) },
	} {
		if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAFencedReplicaWritesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b, operator, key := s.Connect(t, name.ServiceIntake, ""), s.Connect(t, events.UserOperator, "").JetStream(), events.Tenant("default", "demo")
	held := true
	ctx := fence.With(t.Context(), func() bool { return held })
	fact := func(what string) ce.Event {
		return b.NewEvent(key, what, event.FactType(name.ServiceIntake, what), nil, time.Now())
	}
	// In this order, what they do shows.
	writes := []struct {
		what  string
		write func() error
	}{
		{"CreateBucket", func() error { return b.CreateBucket(ctx, key) }},
		{"Publish", func() error {
			_, err := b.Publish(ctx, key.FactSubject(name.ServiceIntake, event.Accepted), fact(event.Accepted))
			return err
		}},
		{"PublishFirst", func() error {
			_, err := b.PublishFirst(ctx, key.FactSubject(name.ServiceIntake, event.Deleting), fact(event.Deleting))
			return err
		}},
		{"Forget", func() error { return b.Forget(ctx, key) }},
	}
	streams := func() (all string) {
		for info := range operator.ListStreams(t.Context()).Info() {
			all += fmt.Sprint(info.Config.Name, " ", info.State.LastSeq, "; ")
		}
		return all
	}
	for _, w := range writes {
		held = false
		before := streams()
		if err := w.write(); !errors.Is(err, fence.ErrFenced) || streams() != before {
			t.Errorf("%s: %v; %s became %s", w.what, err, before, streams())
		}
		held = true
		if err := w.write(); err != nil || streams() == before {
			t.Errorf("%s of one that holds the tenant: %v; %s", w.what, err, before)
		}
	}
}
