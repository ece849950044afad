package data

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// askSoon is how often etcd is asked how far a watch has got that is to be read up to a revision.
const askSoon = 20 * time.Millisecond

// stream is a watch that goes on.
type stream struct {
	t         *Tenant
	watching  context.Context //nolint:containedctx // the watch's own, by which its progress is asked for
	stop      context.CancelFunc
	responses clientv3.WatchChan
	// at is up to where all was yielded; left are events after that.
	at   int64
	left []*clientv3.Event
}

// Watch begins a watch after a revision. It ends with ctx.
func (t *Tenant) Watch(ctx context.Context, after int64) driver.Stream {
	s := &stream{t: t, at: after}
	// The client sends the request for progress on the stream of the watch that has the same metadata.
	s.watching, s.stop = context.WithCancel(clientv3.WithRequireLeader(ctx))
	from, end := t.Prefix, t.end()
	if t.Kine {
		from, end = kineFirst, kineEnd
	}
	s.responses = t.Client.Watch(s.watching, from, clientv3.WithRange(end), clientv3.WithRev(after+1)) //nolint:contextcheck // it comes from ctx
	return s
}

// Close ends the watch.
func (s *stream) Close() { s.stop() }

// UpTo yields what is left, and what comes, up to a revision.
func (s *stream) UpTo(ctx context.Context, to int64) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		ask := time.NewTicker(askSoon)
		defer ask.Stop()
		for said := time.Now(); ; {
			if more, err := s.pass(ctx, to, yield); err != nil || !more {
				if err != nil && !errors.Is(err, errEnough) {
					yield(driver.Change{}, s.t.failed(ctx, "follow", err))
				}
				return
			}
			if err := s.askProgress(); err != nil {
				yield(driver.Change{}, s.t.failed(ctx, "follow", err))
				return
			}
			select {
			case <-ctx.Done():
				yield(driver.Change{}, ctx.Err())
				return
			case <-ask.C:
				if time.Since(said) > quiet {
					yield(driver.Change{}, fmt.Errorf("follow: %w: nothing was heard for %s", driver.ErrAway, quiet))
					return
				}
			case r, open := <-s.responses:
				said = time.Now()
				if err := s.take(r, open); err != nil {
					yield(driver.Change{}, s.t.failed(ctx, "follow", err))
					return
				}
			}
		}
	}
}

func (s *stream) askProgress() error {
	if s.t.Kine {
		return nil
	}
	return s.t.Client.RequestProgress(s.watching)
}

// take notes a response.
func (s *stream) take(r clientv3.WatchResponse, open bool) error {
	switch err := r.Err(); {
	case r.CompactRevision != 0:
		return driver.ErrCompacted
	case err != nil:
		return err
	case !open:
		return fmt.Errorf("%w: the watch has ended", driver.ErrAway)
	}
	s.left = append(s.left, r.Events...)
	if r.IsProgressNotify() && !s.t.Kine && len(s.left) == 0 {
		s.at = max(s.at, r.Header.Revision)
	}
	return nil
}

// pass yields the events that are there, up to a revision, and reports whether more may come before it.
func (s *stream) pass(ctx context.Context, to int64, yield func(driver.Change, error) bool) (more bool, err error) {
	for len(s.left) > 0 && s.left[0].Kv.ModRevision <= to {
		e := s.left[0]
		s.left = s.left[1:]
		if s.t.Kine || len(s.left) == 0 || s.left[0].Kv.ModRevision > e.Kv.ModRevision {
			s.at = e.Kv.ModRevision // a revision of etcd may have several events, and all come at once
		}
		change, ok, err := s.t.change(ctx, e)
		if err != nil {
			return false, err
		}
		if ok && !yield(change, nil) {
			return false, errEnough
		}
	}
	if len(s.left) > 0 {
		s.at = max(s.at, to)
	}
	return s.at < to, nil
}
