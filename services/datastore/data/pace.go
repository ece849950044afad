package data

// How fast a mover copies, and when it is told. Turns ask for it every tellEvery.

import (
	"math"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// pace is how fast keys are copied: the mean of the last interval and of the pace before, so that it follows a change within a few of them.
type pace struct {
	at        time.Time
	keys      int64
	perSecond float64 // 0 while it isn't known
}

// note notes how many keys were copied at a time. Fewer than before are those of a copy that began anew.
func (p *pace) note(now time.Time, keys int64) {
	took := now.Sub(p.at)
	switch {
	case p.at.IsZero(), keys < p.keys:
		*p = pace{at: now, keys: keys}
	case took >= leastInterval:
		last := float64(keys-p.keys) / took.Seconds()
		if p.perSecond > 0 {
			last = (last + p.perSecond) / 2
		}
		*p = pace{at: now, keys: keys, perSecond: last}
	}
}

// left is about how many seconds are left for so many keys in all; 0 where that isn't known.
func (p *pace) left(of int64) int64 {
	if p.perSecond < 1 || of <= p.keys {
		return 0
	}
	return int64(math.Ceil(float64(of-p.keys) / p.perSecond))
}

// progress puts into the state of a move how fast it is, and reports whether that is to be told: when it has entered a phase, and now and then
// while data are copied.
func (o *mover) progress(now time.Time, v *state.Move, entered bool) (tell bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v.Phase != state.MoveCopying {
		o.pace = pace{}
		return entered
	}
	o.pace.note(now, v.Keys)
	v.KeysPerSecond, v.SecondsLeft = int64(math.Round(o.pace.perSecond)), o.pace.left(v.Of)
	if !entered && now.Sub(o.told) < tellCopyingEvery {
		return false
	}
	o.told = now
	return true
}
