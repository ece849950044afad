package nats

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// quiet is how long a stream that has an end may say nothing until the servers count as away.
const quiet = 30 * time.Second

// kinePrefix is what stands before all keys of an API server's.
const kinePrefix = "/registry/"

// A follow reads the bucket's own stream. A watch of kine's passes over what is older than its last compaction, every five minutes of the kine
// beside the API server, also when it has yet to deliver that. The stream has it: of each key the last ten changes are kept, so that the
// last one always comes, and Compact removes nothing while the data move.

// Follow reads the stream from the revision after the one given. ErrCompacted happens before where the revision was raised to.
func (t *tenant) Follow(ctx context.Context, after, to int64) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		if to != 0 && to <= after {
			return
		}
		s := t.watch(ctx, after)
		defer s.Close()
		for c, err := range s.upTo(ctx, to) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// Watch reads the stream from the revision after the one given.
func (t *tenant) Watch(ctx context.Context, after int64) driver.Stream { return t.watch(ctx, after) }

func (t *tenant) watch(ctx context.Context, after int64) *stream {
	s := &stream{at: after}
	if s.nc, s.err = t.enter(ctx); s.err == nil {
		s.messages, s.err = t.messages(ctx, s.nc, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(after) + 1,
		})
	}
	s.raised = raised(t.account.Schema)
	return s
}

// stream reads a bucket's stream piece by piece.
type stream struct {
	nc       *nats.Conn
	messages jetstream.MessagesContext
	raised   string // subject of the message before which there is no history
	err      error  // why it could not begin
	// at is up to where all was yielded, next what comes after that.
	at   int64
	next *driver.Change
	ok   bool // next is a change of a tenant's key
}

// Close ends it.
func (s *stream) Close() {
	if s.messages != nil {
		s.messages.Stop()
	}
	if s.nc != nil {
		s.nc.Close()
	}
}

// UpTo yields the changes up to a revision.
func (s *stream) UpTo(ctx context.Context, to int64) iter.Seq2[driver.Change, error] {
	if to <= s.at {
		return func(func(driver.Change, error) bool) {}
	}
	return s.upTo(ctx, to)
}

// upTo yields the changes up to a revision; up to 0 means without end.
func (s *stream) upTo(ctx context.Context, to int64) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		for to == 0 || s.at < to {
			if err := s.fetch(ctx, to != 0); err != nil {
				if ctx.Err() != nil {
					err = ctx.Err()
				} else {
					err = fmt.Errorf("follow: %w", classify(err))
				}
				yield(driver.Change{}, err)
				return
			}
			if to != 0 && s.next.Revision > to {
				s.at = to
				return
			}
			c := *s.next
			s.next, s.at = nil, c.Revision
			if s.ok && !yield(c, nil) {
				return
			}
		}
	}
}

// fetch sees to it that there is a next one. With an end it is waited for no longer than quiet.
func (s *stream) fetch(ctx context.Context, ends bool) error {
	if s.err != nil || s.next != nil {
		return s.err
	}
	if ends {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	m, err := s.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return err
	}
	if m.Subject() == s.raised {
		return driver.ErrCompacted
	}
	c, ok, err := changeOf(m)
	if err == nil {
		s.next, s.ok = &c, ok
	}
	return err
}

// changeOf reads a message; false for one that isn't a change of a tenant's key, of which just the revision is told.
func changeOf(m jetstream.Msg) (c driver.Change, ok bool, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return c, false, err
	}
	c.Revision = int64(meta.Sequence.Stream)
	if m.Headers().Get(operation) != "" {
		return c, false, nil // the mark of a deletion, which was a change of its own before
	}
	e, err := decode(m.Data())
	if err != nil {
		return c, false, fmt.Errorf("message %d of the bucket is not kine's: %w", c.Revision, err)
	}
	if e.KV == nil {
		return c, false, nil
	}
	c.Key, ok = strings.CutPrefix(e.KV.Key, kinePrefix)
	if c.Deleted = e.Delete; !c.Deleted {
		c.Value, c.Seconds = e.KV.Value, e.KV.Lease
	}
	return c, ok && c.Key != driver.HealthKey && !driver.IsRecord(c.Key), nil
}
