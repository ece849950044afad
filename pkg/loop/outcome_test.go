package loop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestAFailureBesideAnOutcomeIsToldOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, intake(s.Connect(t, "intake", "")))
	turns := 0
	run(t, &loop.Loop{Bus: s.Connect(t, "certs", ""), Service: "certs", Handle: func(ctx context.Context, turn *loop.Turn) error {
		if turn.Tenant == nil {
			return nil
		}
		turns++
		o := loop.Outcome{Step: event.Issued, Inputs: fmt.Sprint(turns)}
		if turns < 3 { // in other words each time, for the same reason
			o.Failure = &state.Failure{Reason: "Stuck", Message: fmt.Sprintf("look %d", turns)}
			turn.Alarm(10*time.Millisecond, loop.Wake{Kind: "look"})
		}
		return turn.Done(ctx, o)
	}})
	operator, key := s.Connect(t, events.UserOperator, ""), events.Tenant("default", "demo")
	apply(t, s.Connect(t, events.UserPortal, ""), key, "1")
	natstest.Eventually(t, "the alarms lead to the third look, at which nothing is wrong any more", func() bool {
		st, err := operator.State(t.Context(), key, "certs")
		return err == nil && st.Inputs == "3" && st.Failure == nil
	})
	subject := key.FactSubject("certs", event.Failed)
	if told := subjects(t, operator, subject)[subject]; told != 1 {
		t.Errorf("the failure was told %d times", told)
	}
}

// A tenant that left the installation and came back, its object unchanged, has a new bucket, whose revisions begin anew: what is told of
// it must not be taken for a repeat.
func TestWhatIsToldOfATenantThatCameBackIsNoRepeat(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	in := s.Connect(t, "intake", "")
	run(t, intake(in))
	portal, operator, key := s.Connect(t, events.UserPortal, ""), s.Connect(t, events.UserOperator, ""), events.Tenant("default", "demo")
	subject := key.FactSubject("intake", event.Accepted)
	for i := range 2 {
		apply(t, portal, key, fmt.Sprint(i))
		natstest.Eventually(t, fmt.Sprintf("time %d: the state is written and told", i+1), func() bool {
			return subjects(t, operator, subject)[subject] == uint64(i+1)
		})
		if err := in.Forget(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}
