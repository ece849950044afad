package events

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// PullExpiring is [Bus.Pull] with requests that expire after a time of the test's.
func (b *Bus) PullExpiring(ctx context.Context, expiry time.Duration, stream, consumer string, opened func(time.Time), receive func(*nats.Msg)) error {
	return (&pull{bus: b, stream: stream, consumer: consumer, expiry: expiry}).run(ctx, opened, receive)
}

// Denied are the subjects that a user may not publish although its permissions include them.
func Denied(user string) []string { return denied(user) }
