package data

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// A page is read from as many keys as were pageBytes together in the one before, but from no more than maxPage, or maxEtcdPage: for each page
// an etcd counts all the keys that are left, so that small pages of many keys take it longer to count than to read.
const (
	firstPage   = 64
	maxPage     = 512
	maxEtcdPage = 8192
	pageBytes   = 2 << 20
)

// Page is a part of all keys at a revision, in the order of the database.
type Page struct {
	Keys []*mvccpb.KeyValue
	// From is how many keys it was read from: Keys, and those that are left out of them.
	From int
	// Last is the last of those, after which the next page goes on if there is More.
	Last string
	More bool
}

// Base is Export.
func (t *Tenant) Base(ctx context.Context, at int64) iter.Seq2[driver.Change, error] {
	return t.Export(ctx, at)
}

// Export pages through the keys at a revision.
func (t *Tenant) Export(ctx context.Context, at int64) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		read, after, limit, most := t.Page, "", firstPage, maxEtcdPage
		if t.Kine {
			most = maxPage
		}
		if read == nil {
			read = t.page
		}
		for {
			page, err := Step(ctx, func(ctx context.Context) (Page, error) { return read(ctx, after, at, limit) })
			if err != nil {
				yield(driver.Change{}, t.failed(ctx, "export", err))
				return
			}
			bytes := 1
			for _, kv := range page.Keys {
				bytes += len(kv.Value)
				if key, ok := t.relative(kv.Key); ok {
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
			if !page.More {
				return
			}
			after = page.Last
			// Twice as many at most: the next ones may be bigger. At least two, of which one may be the last of this page.
			limit = min(max(page.From*pageBytes/bytes, 2), limit*2, most)
		}
	}
}

// page reads a page by etcd's API. It begins with the last key of the one before: what comes right after that, kine asks some databases for
// in a way that passes over others.
func (t *Tenant) page(ctx context.Context, after string, at int64, limit int) (Page, error) {
	from := after
	if from == "" {
		from = t.Prefix
	}
	got, err := t.get(ctx, from, at, limit)
	if err != nil || len(got.Kvs) == 0 {
		return Page{}, err
	}
	page := Page{Keys: got.Kvs, From: len(got.Kvs), Last: string(got.Kvs[len(got.Kvs)-1].Key), More: got.More}
	if string(got.Kvs[0].Key) == after {
		page.Keys = got.Kvs[1:]
	}
	return page, nil
}

// get asks for the keys at a revision, from one on, again until a revision that a member has not heard of yet has come.
func (t *Tenant) get(ctx context.Context, from string, at int64, limit int) (*clientv3.GetResponse, error) {
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
