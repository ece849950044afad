package intent_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestOf(t *testing.T) {
	for what, c := range map[string]struct {
		err  error
		want intent.Intent
	}{
		"no error":                         {nil, intent.Done},
		"any other error":                  {errors.New("refused"), intent.Retry},
		"a dependency that is away":        {&intent.Unavailable{Dependency: "nats", Err: errors.New("refused")}, intent.Wait},
		"what no retry can help":           {&intent.Permanent{Reason: "Invalid", Message: "no"}, intent.GiveUp},
		"a lease that is over":             {fence.ErrFenced, intent.HandOver},
		"a write that somebody's overtook": {intent.ErrStale, intent.Reread},
		"an outage on the way of a write":  {&intent.Unavailable{Err: intent.ErrStale}, intent.Wait},
	} {
		t.Run(what, func(t *testing.T) {
			err := c.err
			if err != nil {
				err = fmt.Errorf("step: %w", err)
			}
			if got := intent.Of(err); got != c.want {
				t.Errorf("Of(%v) = %d, want %d", err, got, c.want)
			}
			if intent.Known(err) != (c.want != intent.Retry) {
				t.Errorf("Known(%v) = %v", err, intent.Known(err))
			}
		})
	}
}
