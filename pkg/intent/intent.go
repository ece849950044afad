// Package intent says what an error means for the work that met it: try again, wait for a dependency, read again, give up, or
// leave it to another replica. Who speaks to a dependency gives its errors their intent: events.Classify for NATS, the
// client in pkg/kube for Kubernetes, services/datastore for the databases. The loop (pkg/loop) decides by [Of] alone.
package intent

import (
	"errors"

	"github.com/stoker-k8s/stoker/pkg/fence"
)

// ErrStale means that somebody else wrote since what was written was read: the turn is repeated from what is there now.
var ErrStale = errors.New("the tenant's state was changed meanwhile")

// Unavailable is the intent of an error that goes away by itself when a dependency comes back: the step is retried without
// limit, the dependency is reported on /readyz and once in the log.
type Unavailable struct { //nolint:errname // the name of an intent
	// Dependency is what is away ("nats", "kubernetes", "datastore default"); empty when it concerns this object alone,
	// which then has no part in whether the service is ready.
	Dependency string
	Err        error
}

func (e *Unavailable) Error() string {
	if e.Dependency == "" {
		return e.Err.Error()
	}
	return e.Dependency + " is unavailable: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Unavailable) Unwrap() error { return e.Err }

// Permanent is the intent of an error no retry can help: the event goes to the dead letters, the tenant's status says why.
type Permanent struct { //nolint:errname // the name of an intent
	// Reason is a constant of pkg/api/reason, for programs and conditions.
	Reason string
	// Message is for people.
	Message string
	// Err is the operator's detail; may be nil.
	Err error
}

func (e *Permanent) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Permanent) Unwrap() error { return e.Err }

// Intent is what is to be done about an error.
type Intent int

// Intents, by what the loop does.
const (
	// Done: there is no error; the events are acknowledged.
	Done Intent = iota
	// Retry: the step failed for no known reason. It is tried again with growing pauses, a limited number of times.
	Retry
	// Wait: a dependency is away ([Unavailable]). It is tried again without limit.
	Wait
	// Reread: somebody else wrote meanwhile ([ErrStale]). It is tried again from what is there now.
	Reread
	// GiveUp: no retry can help ([Permanent]). The events become dead letters.
	GiveUp
	// HandOver: this replica may not go on ([fence.ErrFenced]). Whoever holds the partition does the work.
	HandOver
)

// Of returns the intent of an error.
func Of(err error) Intent {
	var away *Unavailable
	var permanent *Permanent
	switch {
	case err == nil:
		return Done
	case errors.As(err, &away):
		return Wait
	case errors.As(err, &permanent):
		return GiveUp
	case errors.Is(err, fence.ErrFenced):
		return HandOver
	case errors.Is(err, ErrStale):
		return Reread
	}
	return Retry
}

// Known reports whether an error has an intent of its own already, so that no classifier need look at it.
func Known(err error) bool {
	i := Of(err)
	return i != Retry
}
