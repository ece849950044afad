package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/data"
)

// follower follows by the bucket's own stream. A watch of kine's passes over what is older than its last compaction, every
// five minutes of the kine beside the API server, also when it has yet to deliver that. The stream has it: of each
// key the last ten changes are kept, so that the last one always comes, and Compact removes nothing while the data move.
type follower struct {
	*data.Tenant
	s       *server
	account driver.Account
	access  driver.Access
	writer  *writer
}

// Close ends all connections.
func (f *follower) Close() error {
	f.writer.close()
	return f.Tenant.Close()
}

// quiet is how long a stream that has an end may say nothing until the servers count as away.
const quiet = 30 * time.Second

// kinePrefix is what stands before all keys of an API server's.
const kinePrefix = "/registry/"

// Follow reads the stream from the revision after the one given. ErrCompacted happens before where the revision was raised to.
func (f *follower) Follow(ctx context.Context, after, to int64) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		if to != 0 && to <= after {
			return
		}
		s := f.watch(ctx, after)
		defer s.Close()
		for c, err := range s.upTo(ctx, to) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// Watch reads the stream from the revision after the one given.
func (f *follower) Watch(ctx context.Context, after int64) driver.Stream { return f.watch(ctx, after) }

func (f *follower) watch(ctx context.Context, after int64) *stream {
	s := &stream{at: after}
	if s.nc, s.err = f.enter(ctx); s.err == nil {
		s.messages, s.err = f.messages(ctx, s.nc, after)
	}
	s.raised = raised(f.account.Schema)
	return s
}

// Last is the last revision as the leader of the bucket's stream knows it.
func (f *follower) Last(ctx context.Context) (int64, error) {
	nc, err := f.enter(ctx)
	if err != nil {
		return 0, classify(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	bucket, err := js.Stream(ctx, streamOf(f.account.Schema))
	if err != nil {
		return 0, classify(err)
	}
	return int64(bucket.CachedInfo().State.LastSeq), nil
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

// enter connects as the tenant's kine does.
func (f *follower) enter(ctx context.Context, more ...nats.Option) (*nats.Conn, error) {
	var c natsContext
	if err := json.Unmarshal(f.access.Credentials, &c); err != nil {
		return nil, errors.New("the access holds no credentials of NATS")
	}
	own := driver.Config{CA: f.access.CA, ClientCert: f.access.Cert, ClientKey: f.access.Key}
	ca, err := authority.New(own)
	if err != nil {
		return nil, err
	}
	config, _, err := ca.TLS(own)
	if err != nil {
		return nil, err
	}
	if config != nil {
		more = append(more, nats.Secure(config))
	}
	return f.s.connect(ctx, login{user: c.User, password: c.Password, token: c.Token, seed: c.Seed}, more...)
}

func (f *follower) messages(ctx context.Context, nc *nats.Conn, after int64) (jetstream.MessagesContext, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	consumer, err := js.OrderedConsumer(ctx, streamOf(f.account.Schema), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(after) + 1,
	})
	if err != nil {
		return nil, err
	}
	return consumer.Messages()
}

// entry is what kine keeps of a key, compressed.
type entry struct {
	KV           *kineserver.KeyValue
	PrevRevision int64
	Create       bool
	Delete       bool
}

// changeOf reads a message; false for one that isn't a change of a tenant's key, of which just the revision is told.
func changeOf(m jetstream.Msg) (c driver.Change, ok bool, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return c, false, err
	}
	c.Revision = int64(meta.Sequence.Stream)
	if m.Headers().Get("KV-Operation") != "" {
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
