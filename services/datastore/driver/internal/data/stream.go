package data

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// endless is the revision up to which a watch without an end goes.
const endless = math.MaxInt64

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
func (t *Tenant) Watch(ctx context.Context, after int64) driver.Stream { return t.watch(ctx, after) }

func (t *Tenant) watch(ctx context.Context, after int64) *stream {
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
		if err := s.upTo(ctx, to, yield); err != nil && !errors.Is(err, errEnough) {
			yield(driver.Change{}, s.t.failed(ctx, "follow", err))
		}
	}
}

func (s *stream) upTo(ctx context.Context, to int64, yield func(driver.Change, error) bool) error {
	var asks <-chan time.Time // a watch without an end is asked nothing
	if to != endless {
		ask := time.NewTicker(askAgain)
		defer ask.Stop()
		asks = ask.C
	}
	for said, asked := time.Now(), false; ; {
		if more, err := s.pass(ctx, to, yield); err != nil || !more {
			return err
		}
		if asks != nil && !asked {
			if err := s.askProgress(); err != nil {
				return err
			}
			asked = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-asks:
			if asked = false; time.Since(said) > quiet {
				return fmt.Errorf("%w: nothing was heard for %s", driver.ErrAway, quiet)
			}
		case r, open := <-s.responses:
			said = time.Now()
			if err := s.take(r, open); err != nil {
				return err
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
