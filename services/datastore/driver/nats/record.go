package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Record reads one message. To open the data would read all of the bucket.
func (s *server) Record(ctx context.Context, a driver.Account, _ driver.Access, key string) (value []byte, err error) {
	err = s.inBucket(ctx, a, func(ctx context.Context, _ jetstream.JetStream, bucket jetstream.Stream) error {
		e, err := lastOf(ctx, bucket, subjects(a.Schema)+nameOf(kinePrefix+key))
		if err == nil && e.KV != nil && !e.Delete {
			value = e.KV.Value
		}
		return err
	})
	return value, err
}

// lastOf is the last entry of a subject, an empty one when it isn't there or is marked as deleted.
func lastOf(ctx context.Context, bucket jetstream.Stream, subject string) (e entry, err error) {
	m, err := bucket.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return e, nil
	}
	if err != nil || m.Header.Get("KV-Operation") != "" {
		return e, err
	}
	if e, err = decode(m.Data); err != nil {
		return e, fmt.Errorf("message %d of the bucket is not kine's: %w", m.Sequence, err)
	}
	return e, nil
}
