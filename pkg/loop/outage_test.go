package loop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestShortOutageOfNATS(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(natstest.ConnectWith(t, s.Config("intake", ""))))
	done := make(chan string, 1000)
	b := natstest.ConnectWith(t, s.Config("certs", ""))
	run(t, &loop.Loop{Bus: b, Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		if err := turn.Done(ctx, loop.Outcome{Step: "issued", Inputs: fmt.Sprint(turn.Generation),
			Facts: []loop.Tell{{What: event.Issued, Data: event.CertsIssued{About: turn.About()}}}}); err != nil {
			return err
		}
		done <- turn.Key.Name
		return nil
	}})
	portal := s.Connect(t, events.UserPortal, "")
	for round := range 3 {
		for i := range 20 {
			apply(t, portal, events.Tenant("default", fmt.Sprintf("t%d", i)), fmt.Sprintf("%d-%d", round, i))
		}
		s.Stop()
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		operator := s.Connect(t, events.UserOperator, "")
		for i := range 20 {
			key := events.Tenant("default", fmt.Sprintf("t%d", i))
			natstest.Eventually(t, fmt.Sprintf("generation %d of %s issued", round+1, key), func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				st, err := operator.State(ctx, key, "certs")
				return err == nil && st.Generation >= int64(round+1)
			})
		}
	}
}
