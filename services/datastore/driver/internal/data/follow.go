package data

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

const (
	// askAgain is how often etcd is asked how far a watch has got, about which it says nothing while the watch lags behind, or for a
	// revision that it hasn't heard of yet.
	askAgain = 20 * time.Millisecond
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
		if to == 0 {
			to = endless
		}
		if to <= after {
			return
		}
		s := t.watch(ctx, after)
		defer s.Close()
		for c, err := range s.UpTo(ctx, to) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// errEnough means that nobody wants more.
var errEnough = errors.New("enough")

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
