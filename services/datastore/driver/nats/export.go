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
// are written every two seconds. Keys that are written often were also written last: an export begins with those of the last messages up to
// its revision. Then it notes which other messages it needs, without reading them, a hundred thousand a second, and reads them. A key that is
// written ten times before its message is read has the export fail, by driver.ErrCompacted: none is short of a key. Who follows from the
// revision on hears of what was written since, and needs no such care.

const (
	// firstRead is how many messages are read at once to begin with, and mostRead at most: as many as have readBytes together.
	firstRead, mostRead, readBytes = 64, 512, 2 << 20
	// readers is how many of them are asked for at the same time.
	readers = 16
	// askAgain is how often a leader is asked for a revision that it hasn't heard of yet.
	askAgain = 20 * time.Millisecond
	// mostRecent is with how many messages an export begins, if they don't have readBytes before.
	mostRecent = 128
)

// Export reads the bucket's messages, those written last first.
func (t *tenant) Export(ctx context.Context, at int64) iter.Seq2[driver.Change, error] {
	return t.export(ctx, at, true)
}

// Base leaves out what was pushed out since.
func (t *tenant) Base(ctx context.Context, at int64) iter.Seq2[driver.Change, error] {
	return t.export(ctx, at, false)
}

func (t *tenant) export(ctx context.Context, at int64, whole bool) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		last, left, err := t.index(ctx, uint64(max(at, 0)), whole)
		for _, c := range last {
			if err == nil && c != nil && !yield(*c, nil) {
				return
			}
		}
		for n := firstRead; err == nil && len(left) > 0; {
			var read []*driver.Change
			if read, err = t.read(ctx, left[:min(n, len(left))], whole); err != nil {
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

// read reads messages of data: nil for one of a deletion, and for one that is gone unless all are wanted.
func (t *tenant) read(ctx context.Context, sequences []uint64, whole bool) ([]*driver.Change, error) {
	return data.Step(ctx, func(ctx context.Context) ([]*driver.Change, error) {
		all := make([]*driver.Change, len(sequences))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(readers)
		for i, sequence := range sequences {
			g.Go(func() error {
				e, err := t.entry(ctx, sequence)
				if errors.Is(err, driver.ErrCompacted) && !whole {
					return nil
				}
				if err == nil {
					all[i] = e.change(sequence)
				}
				return err
			})
		}
		return all, g.Wait()
	})
}

// change is what an entry of data says of its key, nil that it is deleted.
func (e entry) change(sequence uint64) *driver.Change {
	if e.Delete {
		return nil
	}
	return &driver.Change{Revision: int64(sequence), Key: strings.TrimPrefix(e.KV.Key, kinePrefix), Value: e.KV.Value, Seconds: e.KV.Lease}
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

// index returns what keys were at a revision: those of the last messages, nil for what is deleted, and the messages that hold the others, last
// ones first.
func (t *tenant) index(ctx context.Context, at uint64, whole bool) (last map[subject]*driver.Change, left []uint64, err error) {
	there, err := data.Step(ctx, func(ctx context.Context) (jetstream.StreamState, error) { return t.await(ctx, at) })
	if err != nil || there.Msgs == 0 {
		return nil, nil, err
	}
	if err := t.compacted(ctx, at); err != nil {
		return nil, nil, err
	}
	if whole {
		if last, err = t.recent(ctx, at, there.FirstSeq); err != nil {
			return nil, nil, err
		}
	}
	if left, err = t.keysAt(ctx, at, last, whole); err != nil {
		return nil, nil, err
	}
	// What Compact removes was compacted before.
	if err := t.compacted(ctx, at); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(left, func(a, b uint64) int { return cmp.Compare(b, a) })
	return last, left, nil
}

// recent reads the last messages up to a revision, backwards and one after the other, from the leader: a key's messages go from the first one
// on, so that the first that is found of it was its last.
func (t *tenant) recent(ctx context.Context, at, first uint64) (map[subject]*driver.Change, error) {
	found, bytes := map[subject]*driver.Change{}, 0
	for n := uint64(0); n < mostRecent && at >= first+n && bytes < readBytes; n++ {
		m, err := data.Step(ctx, func(ctx context.Context) (*message, error) { return t.get(ctx, wanted{Sequence: at - n}) })
		if err != nil {
			return nil, err
		}
		if m == nil || !t.isData(m.Subject) {
			continue
		}
		id := idOf(m.Subject)
		if _, known := found[id]; known {
			continue
		}
		header, err := m.header()
		if err != nil {
			return nil, err
		}
		found[id] = nil
		if header.Get(operation) != "" {
			continue
		}
		e, err := entryOf(m.Sequence, m.Data)
		if err != nil {
			return nil, err
		}
		bytes += len(m.Data)
		found[id] = e.change(m.Sequence)
	}
	return found, nil
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
	revision, err := data.Step(ctx, t.compactedTo)
	if err == nil && at < revision {
		err = driver.ErrCompacted
	}
	return err
}

// keysAt returns the last messages up to a revision of each subject of data but those that are known. It reads, without what they hold, all
// messages that there are when it ends: of a key all whose messages of before have been pushed out meanwhile it so sees those that did it.
func (t *tenant) keysAt(ctx context.Context, at uint64, known map[subject]*driver.Change, whole bool) (keys []uint64, err error) {
	nc, err := t.enter(ctx) // which ends when the server is lost
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	messages, err := t.messages(ctx, nc, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: true})
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	seen := seenKeys{at: at, known: known, keys: map[subject]uint64{}, later: map[subject]*laterKey{}}
	for over := false; !over; {
		m, err := data.Step(ctx, func(ctx context.Context) (jetstream.Msg, error) { return messages.Next(jetstream.NextContext(ctx)) })
		if err != nil {
			return nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if t.isData(m.Subject()) {
			seen.note(m.Subject(), meta.Sequence.Stream, m.Headers().Get(operation) != "")
		}
		if over, err = t.over(ctx, meta); err != nil {
			return nil, err
		}
	}
	for _, k := range seen.later {
		if !whole {
			break
		}
		if err := t.madeSince(ctx, at, k); err != nil {
			return nil, err
		}
	}
	return seen.live(), nil
}

// over reports whether no message is left. Where a replica says that none is, another one may have more.
func (t *tenant) over(ctx context.Context, meta *jetstream.MsgMetadata) (bool, error) {
	if meta.NumPending > 0 {
		return false, nil
	}
	next, err := data.Step(ctx, func(ctx context.Context) (*message, error) {
		return t.get(ctx, wanted{Sequence: meta.Sequence.Stream + 1, NextOf: subjects(t.account.Schema) + ">"})
	})
	return next == nil, err
}

// isData reports whether a subject is of a tenant's key: not of kine's own, nor of a record of a move.
func (t *tenant) isData(name string) bool {
	key, ok := strings.CutPrefix(name, subjects(t.account.Schema)+registry)
	if !ok || key == health {
		return false
	}
	for _, record := range records {
		if key == record || strings.HasPrefix(key, record+".") {
			return false
		}
	}
	return true
}

// Names in a bucket: of what stands before all keys of an API server's, and of keys that aren't data.
var (
	registry = nameOf(strings.TrimSuffix(kinePrefix, "/")) + "."
	health   = nameOf("/" + driver.HealthKey)
	records  = []string{nameOf("/" + driver.MoveKey), nameOf("/" + driver.QuotaKey), nameOf("/" + driver.RestoredKey)}
)

// subject stands for one in memory: of a bucket with long names and many keys, the names would take most of it.
type subject [16]byte

func idOf(name string) subject {
	sum := sha256.Sum256([]byte(name))
	return subject(sum[:len(subject{})])
}

// seenKeys are the messages of subjects that were read: by subject the last one up to a revision, gone for one that is deleted then; and the later
// ones of subjects that seem not to have been there then. Those that are known already are left out.
type seenKeys struct {
	at    uint64
	known map[subject]*driver.Change
	keys  map[subject]uint64
	later map[subject]*laterKey
}

// laterKey is what a subject has that is later than a revision: how many messages, the first of them, and whether that is the mark of a deletion.
type laterKey struct {
	first uint64
	mark  bool
	n     int
}

const gone = 0

func (s *seenKeys) note(name string, sequence uint64, mark bool) {
	id := idOf(name)
	if _, known := s.known[id]; known {
		return
	}
	if sequence <= s.at {
		if s.keys[id] = sequence; mark {
			s.keys[id] = gone
		}
		return
	}
	// One that is there has a message, and that is asked for. One that was deleted may have been made again by a message that is pushed out.
	if s.keys[id] != gone {
		return
	}
	k := s.later[id]
	if k == nil {
		k = &laterKey{first: sequence, mark: mark}
		s.later[id] = k
	}
	k.n++
}

// live are the messages of keys that were there.
func (s *seenKeys) live() []uint64 {
	all := make([]uint64, 0, len(s.keys))
	for _, sequence := range s.keys {
		if sequence != gone {
			all = append(all, sequence)
		}
	}
	return all
}

// madeSince is nil for a key that was not there at a revision: no message of it can have been pushed out, or the first that is left says that
// the key was deleted before. Else what it was then isn't known any more.
func (t *tenant) madeSince(ctx context.Context, at uint64, k *laterKey) error {
	if k.n < history {
		return nil
	}
	if k.mark {
		return driver.ErrCompacted
	}
	e, err := data.Step(ctx, func(ctx context.Context) (entry, error) { return t.entry(ctx, k.first) })
	if err == nil && (!e.Create || e.PrevRevision <= 0 || e.PrevRevision > int64(at)) {
		err = driver.ErrCompacted
	}
	return err
}
