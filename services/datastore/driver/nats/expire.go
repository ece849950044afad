package nats

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// kine v0.16.4 ends a key's time to live by a timer that it sets when it writes the key (pkg/drivers/nats/backend.go: Create, Update). What was
// written before it started, as by a former pod of the tenant's or by a move, it never ends: Events would stay for ever.

// leased begin the keys that an API server gives a time to live.
var leased = []string{kinePrefix + "events", kinePrefix + "masterleases"}

// expire deletes, for a while, keys whose time to live was over once as long as that is, which no kine that has set a timer leaves to others,
// nor a clock that is wrong. It reports whether there may be more.
func (t *tenant) expire(ctx context.Context, now time.Time) (more bool, err error) {
	c := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}
	for _, prefix := range leased {
		c.FilterSubjects = append(c.FilterSubjects, subjects(t.account.Schema)+nameOf(prefix)+".>")
	}
	consumer, err := t.js.OrderedConsumer(ctx, streamOf(t.account.Schema), c)
	if err != nil || consumer.CachedInfo().NumPending == 0 {
		return false, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return false, err
	}
	defer messages.Stop()
	for end := time.Now().Add(pieceTime); time.Now().Before(end); {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return false, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return false, err
		}
		if m.Headers().Get(operation) == "" {
			if err := t.expireOne(ctx, now, meta.Sequence.Stream, meta.Timestamp, m.Data()); err != nil {
				return false, err
			}
		}
		if meta.NumPending == 0 {
			return false, nil
		}
	}
	return true, nil
}

func (t *tenant) expireOne(ctx context.Context, now time.Time, sequence uint64, written time.Time, content []byte) error {
	e, err := entryOf(sequence, content)
	if err != nil || e.Delete || e.KV.Lease <= 0 || now.Before(written.Add(2*time.Duration(e.KV.Lease)*time.Second)) {
		return err
	}
	_, err = t.write(ctx, e.KV.Key, driver.Change{Deleted: true}, last{sequence: sequence, kv: e.KV})
	if conflicts(err) { // somebody has written it, or deleted it
		return nil
	}
	return err
}
