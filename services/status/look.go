package status

// When to write, and when to look again. Facts say what was done; what a service waits for, and why, only its state says.
// So a tenant that is on its way is looked at again, and steps that follow each other closely are written as one.

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// look is what becomes of a computed status.
type look struct {
	// Later is true when it needn't be written before the next look.
	Later bool
	// Again is when to look again, 0 for when a fact says so.
	Again time.Duration
}

// lookAt decides from the status that was written last, age ago and for this generation if current, and the one computed
// now; same says that they are equal to the outside. due is true for a second look, which puts nothing off.
func lookAt(last, next state.Status, current, same, due bool, age time.Duration) look {
	switch {
	case !onItsWay(next):
		return look{}
	case same:
		return look{Again: min(max(age, lookSlow), lookSlowest)}
	case current && !due && age >= 0 && age < lookAgain && onItsWay(last) &&
		last.Phase == next.Phase && last.Ready == next.Ready && last.ObservedGeneration == next.ObservedGeneration:
		return look{Later: true, Again: lookAgain - age}
	}
	return look{Again: lookAgain}
}

// onItsWay reports whether services are at work for a tenant: it is neither done nor paused nor stalled.
func onItsWay(s state.Status) bool {
	return meta.IsStatusConditionTrue(s.Conditions, ConditionReconciling)
}
