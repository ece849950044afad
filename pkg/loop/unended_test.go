package loop

import (
	"errors"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
)

func TestAnEventWhoseTurnsNeverEndIsGivenUp(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	l := &Loop{Bus: s.Connect(t, "certs", "a"), Service: "certs"}
	l.prepare(t.Context())
	event := func(sequence, deliveries uint64) []*delivery {
		return []*delivery{{count: deliveries, origin: origin{stream: "STOKER_FACTS", sequence: sequence}}}
	}
	var permanent *intent.Permanent
	for turn := range 3 * maxUnended {
		ended, err := l.begin(t.Context(), event(1, 100))
		if err != nil {
			t.Fatalf("a turn that always ends, the %dth time: %v", turn, err)
		}
		ended()
		if _, err := l.begin(t.Context(), event(2, suspectAfter)); err != nil {
			t.Fatalf("an event delivered %d times: %v", suspectAfter, err)
		}
		_, err = l.begin(t.Context(), event(3, uint64(suspectAfter+1+turn)))
		if turn < maxUnended && err != nil {
			t.Fatalf("a turn that doesn't end, the %dth time: %v", turn, err)
		}
		if turn >= maxUnended && (!errors.As(err, &permanent) || permanent.Reason != reason.TooManyDeliveries) {
			t.Fatalf("a turn that doesn't end, the %dth time: %v", turn, err)
		}
	}
}
