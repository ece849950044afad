package nats

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// kine v0.16.4 ends a key's time to live by a timer that it sets when it writes the key (pkg/drivers/nats/backend.go: Create, Update). What was
// written before it started, as by a former pod of the tenant's or by a move, it never ends: Events, each of which has a name of its own,
// would stay for ever.

// expire deletes, for a while, Events whose time to live was over once as long as that is: what a kine has set a timer for it has ended by then.
// It goes through them in the order in which they were written, after a sequence, and reports up to which it came, the first of those that are
// too young, 0 for none, and whether there is more.
func (t *tenant) expire(ctx context.Context, after uint64, now time.Time) (came, young uint64, more bool, err error) {
	if after > t.bucket.CachedInfo().State.LastSeq { // it is another bucket of that name
		after = 0
	}
	came = after
	consumer, err := ordered(ctx, t.js, t.account.Schema, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		FilterSubjects: []string{subjects(t.account.Schema) + nameOf(kinePrefix+"events") + ".>"},
	})
	if err != nil || consumer.CachedInfo().NumPending == 0 {
		return came, 0, false, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return came, 0, false, err
	}
	defer messages.Stop()
	for end := time.Now().Add(pieceTime); time.Now().Before(end); {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return came, young, false, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return came, young, false, err
		}
		over, err := t.expireOne(ctx, now, meta, m)
		if err != nil {
			return came, young, false, err
		}
		if came = meta.Sequence.Stream; !over && young == 0 {
			young = came
		}
		if meta.NumPending == 0 {
			return came, young, false, nil
		}
	}
	return came, young, true, nil
}

// expireOne deletes the key of a message if the message is its last one. It reports false for a message that is too young. What isn't kine's, or
// has no time to live, is passed over.
func (t *tenant) expireOne(ctx context.Context, now time.Time, meta *jetstream.MsgMetadata, m jetstream.Msg) (over bool, err error) {
	if m.Headers().Get(operation) != "" {
		return true, nil
	}
	e, err := entryOf(meta.Sequence.Stream, m.Data())
	if err != nil || e.KV.Lease <= 0 {
		return true, nil //nolint:nilerr // an export says what is wrong with it
	}
	if now.Before(meta.Timestamp.Add(2 * time.Duration(e.KV.Lease) * time.Second)) {
		return false, nil
	}
	have, err := t.last(ctx, e.KV.Key)
	switch {
	case err != nil, have.sequence != meta.Sequence.Stream:
		return err == nil, err
	case have.kv == nil:
		return true, t.finish(ctx, e.KV.Key, have)
	}
	if _, err = t.write(ctx, e.KV.Key, driver.Change{Deleted: true}, have); conflicts(err) { // somebody has written it, or deleted it
		err = nil
	}
	return err == nil, err
}
