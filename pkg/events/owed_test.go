package events_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestFactsOwedByAFailedPublishAreTold(t *testing.T) {
	s := startNATS(t)
	in := connect(t, s, "intake", "")
	run(t, intake(in))
	limit := func(refuse bool) error { // makes the stream of facts refuse more, as one without a leader would
		st, err := in.JetStream().Stream(t.Context(), events.StreamFacts)
		if err != nil {
			return err
		}
		cfg := st.CachedInfo().Config
		cfg.MaxMsgSize = -1
		if refuse {
			cfg.MaxMsgSize = 1
		}
		_, err = in.JetStream().UpdateStream(t.Context(), cfg)
		return err
	}
	refused := false
	run(t, &events.Loop{Bus: connect(t, s, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *events.Turn) error {
		inputs := fmt.Sprint(turn.Generation)
		if own := turn.Own(); turn.Tenant == nil || own != nil && own.Inputs == inputs {
			return nil // the common case: nothing to do
		}
		if turn.Generation == 2 && !refused {
			refused = true
			if err := limit(true); err != nil {
				t.Error(err)
			}
		}
		return turn.Done(ctx, events.Outcome{
			Step: event.Issued, Inputs: inputs, Facts: []events.Tell{{What: event.Issued, Data: event.CertsIssued{About: turn.About()}}},
		})
	}})
	portal, operator := connect(t, s, events.UserPortal, ""), connect(t, s, events.UserOperator, "")
	key := events.Tenant("default", "demo")
	told := func() uint64 {
		subject := key.FactSubject("certs", event.Issued)
		return subjects(t, operator, subject)[subject]
	}
	apply(t, portal, key, "1")
	eventually(t, "the first fact", func() bool { return told() == 1 })
	apply(t, portal, key, "2")
	eventually(t, "the failure is noted in the state that was written", func() bool {
		st, err := operator.State(t.Context(), key, "certs")
		return err == nil && st.Inputs == "2" && st.Failure != nil
	})
	if err := limit(false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the fact of what was done", func() bool { return told() == 2 })
}
