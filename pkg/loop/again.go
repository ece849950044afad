package loop

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// What was given up is tried again all the same, without its events, for the world may have changed and nobody may tell. A try is one
// turn that looks at everything ([Turn.Due]). The alarm for it is in memory; where a partition moves before it goes off, the next turn
// that finds the failure in the state sets another, and the daily look is one at the latest.

const (
	// tryAgainSoonest is the first pause. Each one after it is as long as the step has failed by then, which doubles, up to
	// tryAgainLatest.
	tryAgainSoonest = 10 * time.Minute
	tryAgainLatest  = 6 * time.Hour
	// wakeAgain is the wake that ends a pause.
	wakeAgain = "loop.again"
)

// tryAgainAfter is how long after now what was given up is tried again, own being the state before. What failed together isn't
// tried again together.
func tryAgainAfter(own *state.State, now time.Time) time.Duration {
	after := tryAgainSoonest
	if own != nil && own.Failure != nil {
		after = min(max(now.Sub(own.Failure.Since), after), tryAgainLatest)
	}
	return wait.Jitter(after*9/10, 0.2)
}

// tryAgainIn is a pause of which left is left by a time in the state. The clock that wrote it may have been wrong.
func tryAgainIn(left time.Duration) time.Duration {
	return min(max(left, tryAgainSoonest), tryAgainLatest)
}

// isAgain reports whether the work is nothing but another try of what was given up.
func (w *work) isAgain() bool {
	return len(w.batch) == 0 && len(w.wakes) == 1 && w.wakes[0].Kind == wakeAgain
}

// tryAgain has an object looked at after a while, and returns when (UTC, in seconds).
func (l *Loop) tryAgain(t *Turn) time.Time {
	now := time.Now()
	after := l.againAfter(t.own, now)
	if t.Key.Valid() {
		l.alarms.set(t.Key, after, Wake{Kind: wakeAgain})
	}
	return now.Add(after).UTC().Truncate(time.Second)
}

// noteDone ends the tries of what was given up after a turn that succeeded, unless the failure stands, as when the turn was about
// something else.
func (l *Loop) noteDone(t *Turn) {
	if t.own == nil || t.own.Failure == nil || t.own.Failure.RetryAt.IsZero() {
		l.alarms.off(alarmOf{t.Key, true})
		return
	}
	l.alarms.set(t.Key, tryAgainIn(time.Until(t.own.Failure.RetryAt)), Wake{Kind: wakeAgain})
}
