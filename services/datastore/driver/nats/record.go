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
		m, err := bucket.GetLastMsgForSubject(ctx, "$KV."+a.Schema+"."+nameOf(kinePrefix+key))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.Header.Get("KV-Operation") != "" {
			return nil
		}
		e, err := decode(m.Data)
		if err != nil {
			return fmt.Errorf("message %d of the bucket is not kine's: %w", m.Sequence, err)
		}
		if e.KV != nil && !e.Delete {
			value = e.KV.Value
		}
		return nil
	})
	return value, err
}
