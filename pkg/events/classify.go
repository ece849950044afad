package events

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/intent"
)

// ErrNotFound means that there is no such bucket or key.
var ErrNotFound = errors.New("not found")

// ErrUnreadable means that a key holds something that is no state. Its owner writes it anew; nobody else waits for what it said.
var ErrUnreadable = errors.New("state is not readable")

// Dependency is the name under which NATS appears on /readyz.
const Dependency = "nats"

// Codes of the server that nats.go has no names for.
const (
	// noPeers: a new stream of several replicas finds too few servers. One is away, or its disk was full and it takes no part any more.
	noPeers jetstream.ErrorCode = 10005
	// storageExceeded: no room is left.
	storageExceeded jetstream.ErrorCode = 10047
	// inProcess: a message of this id is not stored yet. It was sent before, got no answer, and several servers don't agree about it yet,
	// as while they elect a leader. Sent again later it is stored, or known to be.
	inProcess jetstream.ErrorCode = 10158
)

// Classify gives errors of NATS their intent: *[intent.Unavailable] when the servers, JetStream or a stream's leader can't be
// reached. Errors that have an intent keep it.
func Classify(err error) error {
	var api *jetstream.APIError
	switch {
	case intent.Known(err):
		return err
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrReconnectBufExceeded),
		errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, jetstream.ErrStreamNotFound),
		errors.Is(err, jetstream.ErrConsumerNotFound):
		return &intent.Unavailable{Dependency: Dependency, Err: err}
	case errors.As(err, &api) && (api.Code == 503 || slices.Contains([]jetstream.ErrorCode{noPeers, storageExceeded, inProcess}, api.ErrorCode)):
		// JetStream itself isn't there, has no leader, or too few servers that take part or have room.
		return &intent.Unavailable{Dependency: Dependency, Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("timed out: %w", err)
	}
	return err
}

// classifyRequest is [Classify] for a request with a time limit of its own, shorter than ctx: when that limit is over, NATS is away;
// when ctx is, the work itself took too long.
func classifyRequest(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return &intent.Unavailable{Dependency: Dependency, Err: err}
	}
	return Classify(err)
}
