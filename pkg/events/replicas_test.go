package events_test

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestEveryReplicaOfEveryServiceIsHeard(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	intake := s.Connect(t, "intake", "a")
	expected := [][2]string{{"certs", "a"}, {"certs", "b"}, {"intake", "a"}, {"status", "a"}}
	for _, e := range expected {
		bus := s.Connect(t, e[0], e[1])
		stop, err := bus.AnswerAsReplica(func() event.Replica { return event.Replica{Service: e[0], Replica: e[1]} })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		if err := bus.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	var replicas []event.Replica
	natstest.Eventually(t, "all answer in time", func() bool {
		var err error
		if replicas, err = intake.AskReplicas(t.Context(), []string{"intake", "certs", "status", "addons"}, expected); err != nil {
			t.Fatal(err)
		}
		return len(replicas) >= len(expected)
	})
	heard := map[[2]string]int{}
	for _, r := range replicas {
		heard[[2]string{r.Service, r.Replica}]++
	}
	for _, e := range expected {
		if heard[e] != 1 {
			t.Errorf("%v was heard %d times", e, heard[e])
		}
	}
	if len(heard) != len(expected) {
		t.Errorf("heard %v", heard)
	}
	if _, err := s.Connect(t, events.UserOperator, "").AskReplicas(t.Context(), []string{"certs"}, nil); err != nil {
		t.Errorf("who may not ask hears nothing, and no error: %v", err)
	}
}
