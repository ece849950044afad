package events_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestAFactIsNotHandledBeforeItsState(t *testing.T) {
	s := startNATS(t)
	in := connect(t, s, "intake", "")
	key := events.Tenant("default", "demo")
	if err := in.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	put := func(generation int64, at time.Time) {
		data, _ := json.Marshal(state.State{UID: "u", Generation: generation, UpdatedAt: at, Data: event.Marshal(state.Tenant{Namespace: "default", Name: "demo"})})
		m := nats.NewMsg("$KV." + key.Bucket() + ".spec")
		m.Data = data
		if _, err := in.JetStream().PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	// What a reader sees whose server lags: the fact of generation 2, the state of generation 1.
	put(1, now.Add(-time.Minute))
	about := event.About{Namespace: "default", Name: "demo", UID: "u", Generation: 2}
	e := in.NewEvent(key, "2", event.FactType("intake", event.Accepted), event.IntakeAccepted{About: about}, now)
	if _, err := in.Publish(t.Context(), key.FactSubject("intake", event.Accepted), e); err != nil {
		t.Fatal(err)
	}
	handled := make(chan int64, 10)
	run(t, &events.Loop{Bus: connect(t, s, "certs", ""), Service: "certs", Handle: func(_ context.Context, turn *events.Turn) error {
		handled <- turn.Generation
		return nil
	}})
	operator := connect(t, s, events.UserOperator, "")
	eventually(t, "the reader notes that it waits", func() bool {
		st, err := operator.State(t.Context(), key, "certs")
		return err == nil && st.Failure != nil
	})
	put(2, now)
	if got := <-handled; got != 2 {
		t.Errorf("generation %d was handled with the fact of generation 2", got)
	}
}
