package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/data"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// raised is the subject of a message, the first of a bucket whose revision was raised, which says that there is no history before it. To
// kine, which needs a last message to begin with, it is the deletion of a key that nobody asks for: outside of /registry/, and of letters
// that its encoding has.
func raised(bucket string) string { return "$KV." + bucket + ".meta.StokerRaised" }

// Raise purges the bucket up to a sequence beyond its end, for its sequences are kine's revisions, and has kine note that it is compacted.
// driver.ErrHoldsData means that the purge would take data with it.
func (s *server) Raise(ctx context.Context, a driver.Account, access driver.Access, above int64) error {
	if err := s.validate(a); err != nil {
		return err
	}
	var messages uint64
	done := false
	err := s.inBucket(ctx, a, func(ctx context.Context, _ jetstream.JetStream, bucket jetstream.Stream) error {
		messages = bucket.CachedInfo().State.Msgs
		mark, err := bucket.GetLastMsgForSubject(ctx, raised(a.Schema))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		done = err == nil && mark.Sequence > uint64(above)
		return err
	})
	if err != nil {
		return err
	}
	steps := step.New(ctx, s.held)
	if !done {
		if messages > 0 { // kine would wait in vain for a bucket that has sequences and no message
			if err := s.holdsNothing(ctx, a, access); err != nil {
				return err
			}
		}
		steps.Do("raise the revision", func(ctx context.Context) error { return s.purge(ctx, a, above) })
	}
	steps.Do("compact", func(ctx context.Context) error { return s.compact(ctx, a, access, driver.Compacted(above)) })
	return steps.Err()
}

// inBucket calls f as the administrator of the tenant's account.
func (s *server) inBucket(
	ctx context.Context, a driver.Account, f func(context.Context, jetstream.JetStream, jetstream.Stream) error,
) error {
	return s.do(ctx, func(ctx context.Context, p place) error {
		call := func(ctx context.Context, js jetstream.JetStream) error {
			bucket, err := js.Stream(ctx, streamOf(a.Schema))
			if err != nil {
				return fmt.Errorf("bucket %s: %w", a.Schema, err)
			}
			return f(ctx, js, bucket)
		}
		if s.login.operator == nil {
			return call(ctx, p.js)
		}
		return s.inAccount(ctx, a.Schema, limit.Step, call)
	})
}

// holdsNothing looks that kine's own keys are all there is.
func (s *server) holdsNothing(ctx context.Context, a driver.Account, access driver.Access) error {
	t, err := s.data(ctx, a, access)
	if err != nil {
		return err
	}
	return errors.Join(t.failed(ctx, "look whether there are data", t.isEmpty(ctx)), t.Close())
}

// isEmpty is driver.ErrHoldsData for a bucket with a key of the tenant's.
func (t *tenant) isEmpty(ctx context.Context) error {
	info, err := data.Step(ctx, t.info)
	if err != nil || info.State.Msgs == 0 {
		return err
	}
	c := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, HeadersOnly: true}
	messages, err := t.messages(ctx, t.nc, c)
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := data.Step(ctx, func(ctx context.Context) (jetstream.Msg, error) { return messages.Next(jetstream.NextContext(ctx)) })
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if t.isData(m.Subject()) && m.Headers().Get(operation) == "" {
			e, err := data.Step(ctx, func(ctx context.Context) (entry, error) { return t.entry(ctx, meta.Sequence.Stream) })
			if err == nil && !e.Delete {
				err = driver.ErrHoldsData
			}
			if err != nil {
				return err
			}
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
}

// purge empties the bucket and leaves its mark behind.
func (s *server) purge(ctx context.Context, a driver.Account, above int64) error {
	return s.inBucket(ctx, a, func(ctx context.Context, js jetstream.JetStream, bucket jetstream.Stream) error {
		last := max(bucket.CachedInfo().State.LastSeq, uint64(above))
		if err := bucket.Purge(ctx, jetstream.WithPurgeSequence(last+1)); err != nil {
			return err
		}
		mark := &nats.Msg{Subject: raised(a.Schema), Header: nats.Header{operation: {"DEL"}}}
		_, err := js.PublishMsg(ctx, mark, jetstream.WithExpectLastSequence(last))
		return err
	})
}

// compact has kine note that what comes before a revision is compacted.
func (s *server) compact(ctx context.Context, a driver.Account, access driver.Access, revision int64) error {
	t, err := s.data(ctx, a, access)
	if err != nil {
		return err
	}
	return errors.Join(t.failed(ctx, "note what is compacted", t.Compact(ctx, revision)), t.Close())
}

// Compact notes, as kine does, that what comes before a revision is compacted.
func (t *tenant) Compact(ctx context.Context, revision int64) error {
	_, err := data.Step(ctx, func(ctx context.Context) (uint64, error) {
		for {
			have, err := t.last(ctx, kineCompactKey)
			if err != nil {
				return 0, err
			}
			version, at := noted(have.kv)
			if at >= revision {
				return 0, nil
			}
			note := kineserver.EncodeVersion(version+1, strconv.AppendInt(nil, revision, 10))
			if done, err := t.write(ctx, kineCompactKey, driver.Change{Value: note}, have); !conflicts(err) {
				return done, err
			}
		}
	})
	return err
}
