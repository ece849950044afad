package events_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

// bury stores a dead letter of a service, as pkg/loop does.
func bury(t *testing.T, bus *events.Bus, key events.Key, service, cause string) {
	t.Helper()
	m := nats.NewMsg(key.DeadSubject(service))
	m.Header.Set(events.HeaderSubject, key.FactSubject("intake", event.Accepted))
	m.Header.Set(events.HeaderCause, cause)
	if _, err := bus.JetStream().PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	certs, intake := s.Connect(t, "certs", ""), s.Connect(t, "intake", "")
	demo, other := events.Tenant("default", "demo"), events.Tenant("other", "demo")
	const many = 700 // more than are searched at once
	for i := range many {
		key := demo
		if i == 3 {
			key = other
		}
		if i%5 == 4 { // no more than are kept of each object
			key = events.Tenant("default", fmt.Sprint("t", i))
		} else if i > 3 {
			key = events.Tenant("default", fmt.Sprint("demo", i%4))
		}
		bury(t, certs, key, "certs", fmt.Sprint(i))
	}
	list := func(f event.DeadFilter, before uint64, limit int) (causes []string, more bool) {
		t.Helper()
		letters, more, err := intake.DeadLetters(t.Context(), f, before, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range letters {
			causes = append(causes, d.Cause)
		}
		return causes, more
	}
	if got, more := list(event.DeadFilter{}, 0, 3); !slices.Equal(got, []string{"699", "698", "697"}) || !more {
		t.Errorf("the newest: %v, more: %v", got, more)
	}
	if got, more := list(event.DeadFilter{}, 698, 2); !slices.Equal(got, []string{"696", "695"}) || !more {
		t.Errorf("those before: %v, more: %v", got, more)
	}
	if got, more := list(event.DeadFilter{Service: "certs", Namespace: "other", Name: "demo"}, 0, 3); !slices.Equal(got, []string{"3"}) || more {
		t.Errorf("of one object, far back: %v, more: %v", got, more)
	}
	if got, more := list(event.DeadFilter{Service: "workload"}, 0, 3); len(got) > 0 || more {
		t.Errorf("of another service: %v, more: %v", got, more)
	}
	if got, more := list(event.DeadFilter{Namespace: "default", Name: "demo"}, 0, 3); !slices.Equal(got, []string{"2", "1", "0"}) || more {
		t.Errorf("as many as there are: %v, more: %v", got, more)
	}
}
