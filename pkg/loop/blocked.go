package loop

import (
	"context"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// A service that is blocked looks again after a second, then after as long as that has lasted, at most half a minute.
const (
	soonestLook = time.Second
	latestLook  = 30 * time.Second
)

// Blocked notes what keeps the step from being done and ends without an event, as when an object's name is taken, tells it once, and
// wakes the service with w to look again. The rest of the own state stays as it is; the next [Turn.Done] or [Turn.Wait] clears the
// failure. The turn's events are done with.
func (t *Turn) Blocked(ctx context.Context, f state.Failure, w Wake) error {
	if err := t.fail(ctx, f); err != nil {
		return err
	}
	lasted := time.Duration(0)
	if t.own != nil && t.own.Failure != nil {
		lasted = time.Since(t.own.Failure.Since)
	}
	t.Alarm(min(max(lasted, soonestLook), latestLook), w)
	return nil
}
