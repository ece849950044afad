package data

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// A page is as many keys as were pageBytes together in the one before, but no more than maxPage.
const (
	firstPage = 64
	maxPage   = 512
	pageBytes = 4 << 20
)

// Export pages through the keys at a revision. Each page begins with the last key of the one before: what comes right
// after it, kine asks some databases for in a way that passes over others.
func (t *Tenant) Export(ctx context.Context, at int64) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		from, limit, again := t.Prefix, firstPage, ""
		for {
			page, err := step(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
				return t.page(ctx, from, at, limit)
			})
			if err != nil {
				yield(driver.Change{}, t.failed(ctx, "export", err))
				return
			}
			bytes := 1
			for _, kv := range page.Kvs {
				bytes += len(kv.Value)
				if key, ok := t.relative(kv.Key); ok && string(kv.Key) != again {
					seconds, err := t.seconds(ctx, kv.Lease)
					if err != nil {
						yield(driver.Change{}, t.failed(ctx, "export", err))
						return
					}
					if !yield(driver.Change{Revision: kv.ModRevision, Key: key, Value: kv.Value, Seconds: seconds}, nil) {
						return
					}
				}
			}
			if !page.More || len(page.Kvs) == 0 {
				return
			}
			again = string(page.Kvs[len(page.Kvs)-1].Key)
			from = again
			// Twice as many at most: the next ones may be bigger. At least two, of which one is the last of this page.
			limit = min(max(len(page.Kvs)*pageBytes/bytes, 2), limit*2, maxPage)
		}
	}
}

// page is the keys at a revision, from one on. A kine of NATS answers by what it has heard from the servers, and may not have heard
// yet of a revision that was written through another one, or, when it is slow, through itself. It is asked again until it has.
func (t *Tenant) page(ctx context.Context, from string, at int64, limit int) (*clientv3.GetResponse, error) {
	for {
		page, err := t.Client.Get(ctx, from, clientv3.WithRange(t.end()), clientv3.WithRev(at), clientv3.WithLimit(int64(limit)))
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrFutureRev) {
			return page, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(askAgain):
		}
	}
}
