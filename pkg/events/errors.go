package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors of this package.
var (
	// ErrFenced means that this replica may no longer work on the tenant: its lease ran out or its partition moved.
	ErrFenced = errors.New("this replica no longer holds the partition")
	// ErrStale means that somebody else wrote the state since it was read.
	ErrStale = errors.New("the tenant's state was changed meanwhile")
	// ErrNotFound means that there is no such bucket or key.
	ErrNotFound = errors.New("not found")
)

// Unavailable is the intent of an error that goes away by itself when a dependency comes back: the step is retried
// without limit, the dependency is reported on /readyz and once in the log.
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
func (e *Unavailable) Unwrap() error { return e.Err }

// Permanent is the intent of an error no retry can help: the event goes to the dead letters, the tenant's status says why.
type Permanent struct { //nolint:errname // the name of an intent
	// Reason is CamelCase, for conditions.
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
func (e *Permanent) Unwrap() error { return e.Err }

// classify gives errors of NATS itself their intent.
func classify(err error) error {
	var u *Unavailable
	var p *Permanent
	var api *jetstream.APIError
	switch {
	case err == nil, errors.As(err, &u), errors.As(err, &p), errors.Is(err, ErrFenced), errors.Is(err, ErrStale):
		return err
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrReconnectBufExceeded),
		errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, jetstream.ErrStreamNotFound),
		errors.Is(err, jetstream.ErrConsumerNotFound):
		return &Unavailable{Dependency: "nats", Err: err}
	case errors.As(err, &api) && api.Code == 503: // JetStream itself isn't there, or has no leader
		return &Unavailable{Dependency: "nats", Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("timed out: %w", err)
	}
	return err
}

// late is classify for the answer to a question of our own, whose time-out means that NATS doesn't answer, unless it is
// the turn's own time, ctx, that ran out.
func late(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return &Unavailable{Dependency: "nats", Err: err}
	}
	return classify(err)
}
