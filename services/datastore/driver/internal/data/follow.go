package data

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

const (
	// askAgain is how often etcd is asked how far a watch has got, about which it says nothing while the watch lags behind, and a kine
	// for a revision that it hasn't heard of yet.
	askAgain = 200 * time.Millisecond
	// quiet is how long a watch that has an end may say nothing until the database counts as away.
	quiet = 30 * time.Second
)

// All keys of a kine, whose own are without the slash.
const (
	kineFirst = "/"
	kineEnd   = "z"
)

// Follow watches from the revision after the one given.
func (t *Tenant) Follow(ctx context.Context, after, to int64) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		if to != 0 && to <= after {
			return
		}
		// The client sends the request for progress on the stream of the watch that has the same metadata.
		watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		defer stop()
		from, end := t.Prefix, t.end()
		if t.Kine {
			from, end = kineFirst, kineEnd
		}
		responses := t.Client.Watch(watching, from, clientv3.WithRange(end), clientv3.WithRev(after+1))
		ask := time.NewTicker(askAgain)
		defer ask.Stop()
		said := time.Now()
		for {
			select {
			case <-ctx.Done():
				yield(driver.Change{}, ctx.Err())
				return
			case <-ask.C:
				if to == 0 {
					continue
				}
				if time.Since(said) > quiet {
					yield(driver.Change{}, fmt.Errorf("follow: %w: nothing was heard for %s", driver.ErrAway, quiet))
					return
				}
				if !t.Kine {
					if err := t.Client.RequestProgress(watching); err != nil {
						yield(driver.Change{}, t.failed(ctx, "follow", err))
						return
					}
				}
			case r, open := <-responses:
				said = time.Now()
				if r.CompactRevision != 0 {
					yield(driver.Change{}, fmt.Errorf("follow: %w", driver.ErrCompacted))
					return
				}
				if err := r.Err(); err != nil || !open {
					if err == nil {
						err = fmt.Errorf("%w: the watch has ended", driver.ErrAway)
					}
					yield(driver.Change{}, t.failed(ctx, "follow", err))
					return
				}
				more, err := t.changes(ctx, r, to, yield)
				if err != nil && !errors.Is(err, errEnough) {
					yield(driver.Change{}, t.failed(ctx, "follow", err))
				}
				if err != nil || !more {
					return
				}
			}
		}
	}
}

// errEnough means that nobody wants more.
var errEnough = errors.New("enough")

// changes yields those of one response and reports whether there may be more before the end. All events of a revision
// come in one response.
func (t *Tenant) changes(ctx context.Context, r clientv3.WatchResponse, to int64, yield func(driver.Change, error) bool) (bool, error) {
	if to != 0 && r.IsProgressNotify() && r.Header.Revision >= to {
		return false, nil
	}
	reached := int64(0)
	for _, e := range r.Events {
		reached = e.Kv.ModRevision
		if to != 0 && reached > to {
			return false, nil
		}
		c, ok, err := t.change(ctx, e)
		if err != nil {
			return false, err
		}
		if ok && !yield(c, nil) {
			return false, errEnough
		}
	}
	return to == 0 || reached < to, nil
}

// change is what an event says; false for one about what isn't the tenant's data.
func (t *Tenant) change(ctx context.Context, e *clientv3.Event) (c driver.Change, ok bool, err error) {
	key, ok := t.relative(e.Kv.Key)
	if !ok {
		return c, false, nil
	}
	c = driver.Change{Revision: e.Kv.ModRevision, Key: key, Deleted: e.Type == mvccpb.DELETE}
	if !c.Deleted {
		c.Seconds, err = t.seconds(ctx, e.Kv.Lease)
		c.Value = e.Kv.Value
	}
	return c, true, err
}
