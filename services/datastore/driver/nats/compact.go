package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

var _ driver.Compactor = (*server)(nil)

// kine notes up to which revision a bucket is compacted, and removes nothing: of a key that is deleted the last versions stay, up to ten, and
// of Events, each of which has another name, there are ever more. Compact removes them, and ends times to live that no kine ends. What a key
// that is there was before stays, at most nine versions.

const (
	// purgeEvery is how long after a bucket was looked through it is looked through again.
	purgeEvery = time.Hour
	// compactTime bounds one call of Compact, pieceTime one visit to a bucket. What is left over is for the next one.
	compactTime, pieceTime = 20 * time.Second, 2 * time.Second
	// purgesAtOnce is how many keys of a bucket are removed at once, purgesNoted how many are read before.
	purgesAtOnce, purgesNoted = 8, 64
	// kineCompactKey is the key of kine's note.
	kineCompactKey = "compact_rev_key_apiserver"
)

// purging is how far the buckets of all tenants are looked through.
type purging struct {
	sync.Mutex
	buckets map[string]purged
	// next is the schema to begin with.
	next string
}

// purged is how far one bucket is looked through.
type purged struct {
	// expired is the sequence up to which no Events are left whose time to live is over.
	expired uint64
	// done is the sequence up to which all deleted keys are gone, until the one up to which they may go: kine refused
	// to show what came before already when the bucket was visited the last time, so nobody is reading it any more.
	done, until uint64
	// due is when it is to be visited again.
	due time.Time
}

// Compact removes what the buckets keep of deleted keys, up to where each was compacted at the call before. A bucket that takes part in a
// move is left as it is, for the move still reads deletions.
func (s *server) Compact(ctx context.Context) (did string, err error) {
	s.purging.Lock()
	defer s.purging.Unlock()
	var schemas []string
	err = s.do(ctx, func(ctx context.Context, p place) error {
		all, err := p.schemas(ctx)
		if err != nil {
			return err
		}
		schemas = nil
		return s.buckets(ctx, p, all, func(schema string, _ bucketDetail) { schemas = append(schemas, schema) })
	})
	if err != nil {
		return "", err
	}
	slices.Sort(schemas)
	before := s.purging.buckets
	s.purging.buckets = map[string]purged{}
	for _, schema := range schemas {
		s.purging.buckets[schema] = before[schema]
	}
	first, _ := slices.BinarySearch(schemas, s.purging.next)
	end := time.Now().Add(compactTime)
	for _, schema := range slices.Concat(schemas[first:], schemas[:first]) {
		at := s.purging.buckets[schema]
		if s.now().Before(at.due) {
			continue
		}
		if time.Now().After(end) {
			break
		}
		s.purging.next = schema + "\x00" // whatever comes of this one, the others have their turn
		s.purging.buckets[schema], err = s.lookThrough(ctx, schema, at, end)
		// One that was just removed is no fault, nor does what is wrong with one tenant's say that the servers are away.
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return "", fmt.Errorf("bucket %s: %w", schema, err)
		}
	}
	return "", nil
}

// lookThrough visits a bucket until its deleted keys are gone and its times to live are ended, or it is time to end. What is deleted goes first:
// a NATS that is full takes no deletions.
func (s *server) lookThrough(ctx context.Context, schema string, at purged, end time.Time) (purged, error) {
	at, gone, err := s.purgeBucket(ctx, schema, at, end)
	if err != nil {
		return at, err
	}
	at, ended, err := s.expireBucket(ctx, schema, at, end)
	if gone && ended {
		at.due = s.now().Add(purgeEvery)
	}
	return at, err
}

// purgeBucket visits a bucket, as often as it takes until its deleted keys are gone, which it reports, or it is time to end.
func (s *server) purgeBucket(ctx context.Context, schema string, at purged, end time.Time) (_ purged, gone bool, err error) {
	for {
		compacted := uint64(0)
		moving, err := s.unmoved(ctx, schema, func(ctx context.Context, t *tenant) (err error) {
			if compacted, err = t.compactedTo(ctx); err != nil {
				return err
			}
			if compacted < at.until { // it is another bucket of that name
				at = purged{}
			}
			at.done, err = purgeSome(ctx, t.js, t.bucket, schema, at)
			return err
		})
		if err != nil || moving { // the next call looks again
			return at, false, err
		}
		if at.done >= at.until {
			gone = at.until > 0 || compacted == 0
			at.until = compacted
			return at, gone, nil
		}
		if time.Now().After(end) {
			return at, false, nil
		}
	}
}

// expireBucket visits a bucket, as often as it takes until no times to live are left that are over, which it reports, or it is time to end.
func (s *server) expireBucket(ctx context.Context, schema string, at purged, end time.Time) (_ purged, ended bool, err error) {
	came, first, more := at.expired, uint64(0), true
	for more {
		if time.Now().After(end) {
			return at, false, nil
		}
		moving, err := s.unmoved(ctx, schema, func(ctx context.Context, t *tenant) (err error) {
			var young uint64
			if came, young, more, err = t.expire(ctx, came, s.now()); first == 0 {
				first = young
			}
			return err
		})
		if err != nil || moving { // the next call goes on
			return at, false, err
		}
	}
	if at.expired = came; first > 0 {
		at.expired = first - 1
	}
	return at, true, nil
}

// unmoved visits a bucket whose data aren't being moved.
func (s *server) unmoved(ctx context.Context, schema string, f func(context.Context, *tenant) error) (moving bool, err error) {
	err = s.visit(ctx, schema, func(ctx context.Context, js jetstream.JetStream) error {
		bucket, err := js.Stream(ctx, streamOf(schema))
		if err != nil {
			return err
		}
		t := s.administered(schema, js, bucket)
		if moving, err = t.hasMove(ctx); err != nil || moving {
			return err
		}
		return f(ctx, t)
	})
	return moving, err
}

// visit calls f in a tenant's account, or in the only one there is. Errors are as they come.
func (s *server) visit(ctx context.Context, schema string, f func(context.Context, jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*limit.Step)
	defer cancel()
	if s.login.operator != nil {
		return s.inAccount(ctx, schema, limit.Step, f)
	}
	p, err := s.at(ctx)
	if err != nil {
		return err
	}
	return f(ctx, p.js)
}

// purgeSome removes deleted keys for a while, and returns up to which sequence all are gone. kine's note itself comes after what it is about,
// so the last message, from which kine begins when it starts, is never one to go.
func purgeSome(ctx context.Context, js jetstream.JetStream, bucket jetstream.Stream, schema string, at purged) (done uint64, err error) {
	if at.done >= at.until {
		return at.done, nil
	}
	consumer, err := ordered(ctx, js, schema, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: at.done + 1, HeadersOnly: true,
	})
	if err != nil {
		return at.done, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return at.done, err
	}
	defer messages.Stop()
	deleted := map[string]uint64{} // the sequence of the mark, by subject
	for end := time.Now().Add(pieceTime); ; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return at.done, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return at.done, err
		}
		read := min(meta.Sequence.Stream, at.until)
		if read == meta.Sequence.Stream && m.Headers().Get(operation) != "" && m.Subject() != raised(schema) {
			deleted[m.Subject()] = read
		}
		if meta.NumPending == 0 {
			read = at.until
		}
		over := read == at.until || time.Now().After(end)
		if !over && len(deleted) < purgesNoted {
			continue
		}
		if err := purgeAll(ctx, bucket, deleted); err != nil {
			return at.done, err
		}
		if at.done = read; over {
			return at.done, nil
		}
		clear(deleted)
	}
}

// purgeAll removes the messages of subjects up to a sequence each. What was written since stays.
func purgeAll(ctx context.Context, bucket jetstream.Stream, upTo map[string]uint64) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(purgesAtOnce)
	for subject, sequence := range upTo {
		g.Go(func() error {
			return bucket.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(sequence+1))
		})
	}
	return g.Wait()
}

// hasMove reports whether a bucket's data are being moved, or have moved.
func (t *tenant) hasMove(ctx context.Context) (bool, error) {
	have, err := t.last(ctx, kinePrefix+driver.MoveKey)
	return have.kv != nil, err
}

// compactedTo is up to which sequence kine shows nothing of the past any more, 0 for nowhere.
func (t *tenant) compactedTo(ctx context.Context) (uint64, error) {
	have, err := t.last(ctx, kineCompactKey)
	_, revision := noted(have.kv)
	return uint64(revision), err
}

// noted is kine's note in a bucket: how often it was written, and up to which revision it says that the bucket is compacted.
func noted(kv *kineserver.KeyValue) (version, revision int64) {
	if kv == nil {
		return 0, 0
	}
	version, text := kineserver.DecodeVersion(kv.Value)
	revision, _ = strconv.ParseInt(string(text), 10, 64) // kine, too, takes what it can't read for 0
	return version, revision
}
