package events

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Counts is what a connection has met since it was opened.
type Counts struct {
	// Disconnects are losses of the connection to a server, Reconnects how often it was there again after one.
	Disconnects, Reconnects uint64
	// SlowConsumers are the times at which messages of a subscription were dropped because nobody took them, Refused what the server
	// didn't let this user do, Errors what else it complained of.
	SlowConsumers, Refused, Errors uint64
	// PublishErrors are messages and states that the server did not store or not say so. One that somebody else overtook is none.
	PublishErrors uint64
	// InMessages and InBytes came, OutMessages and OutBytes were sent.
	InMessages, OutMessages, InBytes, OutBytes uint64
}

// counts are those that the client library doesn't keep.
type counts struct{ disconnects, slowConsumers, refused, errors, publishErrors atomic.Uint64 }

// Counts returns what the connection has met so far.
func (b *Bus) Counts() Counts {
	s := b.nc.Stats()
	return Counts{
		Disconnects: b.counts.disconnects.Load(), Reconnects: s.Reconnects, SlowConsumers: b.counts.slowConsumers.Load(),
		Refused: b.counts.refused.Load(), Errors: b.counts.errors.Load(), PublishErrors: b.counts.publishErrors.Load(),
		InMessages: s.InMsgs, OutMessages: s.OutMsgs, InBytes: s.InBytes, OutBytes: s.OutBytes,
	}
}

// noteError counts what the server complained of, or the library in its place.
func (c *counts) noteError(err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		c.slowConsumers.Add(1)
	case errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, nats.ErrAuthorization):
		c.refused.Add(1)
	default:
		c.errors.Add(1)
	}
}

// publish has the server store a message, and counts it when that fails.
func (b *Bus) publish(ctx context.Context, msg *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := b.js.PublishMsg(ctx, msg, o...)
	if err != nil && !isWrongLast(err) && !errors.Is(err, context.Canceled) {
		b.counts.publishErrors.Add(1)
	}
	return ack, err
}
