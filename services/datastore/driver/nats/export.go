package nats

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/data"
)

// A bucket keeps the last ten messages of a key, so that what a key was at a revision is gone once it was written ten times since. Leases
// are written every two seconds. Kubernetes' keys that are written often were also written last: an export notes which messages it needs,
// without reading them, and then reads those first that were written last. It would take a key that is written ten times more often than
// an export can read keys to be missed, and then the export fails, by driver.ErrCompacted, and isn't short of it.

const (
	// firstRead is how many messages are read at once to begin with, and mostRead at most: as many as have readBytes together.
	firstRead, mostRead, readBytes = 64, 512, 2 << 20
	// readers is how many of them are asked for at the same time.
	readers = 16
	// askAgain is how often a leader is asked for a revision that it hasn't heard of yet.
	askAgain = 20 * time.Millisecond
)

// Export reads the bucket's messages, those written last first.
func (t *tenant) Export(ctx context.Context, at int64) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		left, err := t.index(ctx, uint64(max(at, 0)))
		for n := firstRead; err == nil && len(left) > 0; {
			var read []*driver.Change
			if read, err = t.read(ctx, left[:min(n, len(left))]); err != nil {
				break
			}
			left = left[min(n, len(left)):]
			bytes := 1
			for _, c := range read {
				if c == nil {
					continue
				}
				bytes += len(c.Value)
				if !yield(*c, nil) {
					return
				}
			}
			n = min(max(len(read)*readBytes/bytes, 2), 2*n, mostRead)
		}
		if err != nil {
			yield(driver.Change{}, t.failed(ctx, "export", err))
		}
	}
}

// read reads messages: nil for one that isn't of a tenant's key, or is of one that is deleted.
func (t *tenant) read(ctx context.Context, sequences []uint64) ([]*driver.Change, error) {
	return data.Step(ctx, func(ctx context.Context) ([]*driver.Change, error) {
		all := make([]*driver.Change, len(sequences))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(readers)
		for i, sequence := range sequences {
			g.Go(func() error {
				e, err := t.entry(ctx, sequence)
				if err != nil || e.Delete {
					return err
				}
				if key, ok := strings.CutPrefix(e.KV.Key, kinePrefix); ok && key != driver.HealthKey && !driver.IsRecord(key) {
					all[i] = &driver.Change{Revision: int64(sequence), Key: key, Value: e.KV.Value, Seconds: e.KV.Lease}
				}
				return nil
			})
		}
		return all, g.Wait()
	})
}

// entry reads a message that was there a moment ago, from any replica, or from the leader where that one hasn't got it.
func (t *tenant) entry(ctx context.Context, sequence uint64) (e entry, err error) {
	got, err := t.bucket.GetMsg(ctx, sequence)
	if err == nil {
		return entryOf(sequence, got.Data)
	}
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return e, err
	}
	m, err := t.get(ctx, wanted{Sequence: sequence})
	if err == nil && m == nil {
		err = driver.ErrCompacted
	}
	if err != nil {
		return e, err
	}
	return entryOf(sequence, m.Data)
}

// subject stands for one in memory: of a bucket with long names and many keys, the names would take most of it.
type subject [16]byte

// index returns the messages that hold what the keys were at a revision, last ones first.
func (t *tenant) index(ctx context.Context, at uint64) ([]uint64, error) {
	there, err := data.Step(ctx, func(ctx context.Context) (jetstream.StreamState, error) { return t.await(ctx, at) })
	if err != nil || there.Msgs == 0 {
		return nil, err
	}
	if err := t.compacted(ctx, at); err != nil {
		return nil, err
	}
	keys, later, err := t.keysAt(ctx, at, there.LastSeq)
	if err != nil {
		return nil, err
	}
	// What Compact removes was compacted before.
	if err := t.compacted(ctx, at); err != nil {
		return nil, err
	}
	for _, sequence := range later {
		if err := t.madeSince(ctx, at, sequence); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(keys, func(a, b uint64) int { return cmp.Compare(b, a) })
	return keys, nil
}

// await returns what the bucket has when it has come to a revision.
func (t *tenant) await(ctx context.Context, at uint64) (there jetstream.StreamState, err error) {
	for {
		info, err := t.info(ctx)
		if err != nil {
			return there, err
		}
		if info.State.LastSeq >= at {
			return info.State, nil
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return there, fmt.Errorf("%w: revision %d has not come", driver.ErrAway, at)
		}
	}
}

// compacted is driver.ErrCompacted for a revision of which kine would say that it is.
func (t *tenant) compacted(ctx context.Context, at uint64) error {
	note, err := data.Step(ctx, func(ctx context.Context) (last, error) { return t.last(ctx, kineCompactKey) })
	if _, revision := noted(note.kv); err == nil && int64(at) < revision {
		err = driver.ErrCompacted
	}
	return err
}

// keysAt reads, without what they hold, all messages of the bucket, of which the last one was told. keys are the last ones of each subject
// up to a revision, later the first ones of those subjects that have none up to there.
func (t *tenant) keysAt(ctx context.Context, at, end uint64) (keys, later []uint64, err error) {
	nc, err := t.enter(ctx) // which ends when the server is lost
	if err != nil {
		return nil, nil, err
	}
	defer nc.Close()
	messages, err := t.messages(ctx, nc, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: true})
	if err != nil {
		return nil, nil, err
	}
	defer messages.Stop()
	const gone = 0 // the sequence of a key that was deleted, or has a message after the revision alone
	seen := map[subject]uint64{}
	for {
		m, err := data.Step(ctx, func(ctx context.Context) (jetstream.Msg, error) { return messages.Next(jetstream.NextContext(ctx)) })
		if err != nil {
			return nil, nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, nil, err
		}
		sum := sha256.Sum256([]byte(m.Subject()))
		id, sequence := subject(sum[:len(subject{})]), meta.Sequence.Stream
		_, known := seen[id]
		mark := m.Headers().Get(operation) != ""
		switch {
		case sequence > at && known:
		case sequence > at && mark: // of a deletion that is there no more
			return nil, nil, driver.ErrCompacted
		case sequence > at:
			seen[id], later = gone, append(later, sequence)
		case mark:
			seen[id] = gone
		default:
			seen[id] = sequence
		}
		over, err := t.over(ctx, sequence, end, meta.NumPending)
		if err != nil {
			return nil, nil, err
		}
		if over {
			break
		}
	}
	keys = make([]uint64, 0, len(seen))
	for _, sequence := range seen {
		if sequence != gone {
			keys = append(keys, sequence)
		}
	}
	return keys, later, nil
}

// over reports whether no message is left before the end. Where a replica says that none is, another one may have more.
func (t *tenant) over(ctx context.Context, sequence, end, pending uint64) (bool, error) {
	if sequence >= end || pending > 0 {
		return sequence >= end, nil
	}
	next, err := data.Step(ctx, func(ctx context.Context) (*message, error) {
		return t.get(ctx, wanted{Sequence: sequence + 1, NextOf: subjects(t.account.Schema) + ">"})
	})
	return next == nil || next.Sequence > end, err
}

// madeSince is nil for a key that was made after a revision, of whose messages the first one there is was told: what it was at the revision
// isn't among those that were there no more.
func (t *tenant) madeSince(ctx context.Context, at, sequence uint64) error {
	e, err := data.Step(ctx, func(ctx context.Context) (entry, error) { return t.entry(ctx, sequence) })
	switch {
	case err != nil:
		return err
	case e.Create && e.PrevRevision <= int64(at), !e.Create && e.KV.CreateRevision > int64(at):
		return nil
	}
	return driver.ErrCompacted
}
