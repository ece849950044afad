package data

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// etcdWriters is how many transactions of an etcd are under way at once. Each holds whatever has come meanwhile: few keys while the
// source is slow, many while etcd is. More writers would leave fewer keys to each.
const etcdWriters = 4

// importBytes is how much of an import is in memory.
const importBytes = 16 << 20

// Import hands each key's changes to one writer, which writes them in their order.
func (t *Tenant) Import(ctx context.Context, changes iter.Seq2[driver.Change, error]) error {
	if !t.Kine {
		return spread(ctx, changes, spreading{etcdWriters, batchKeys, batchKeys}, t.writeBatch, t.failed)
	}
	return Each(ctx, changes, t.Writers, t.write, t.failed)
}

// Each writes changes one by one, several at once but those of one key in their order. failed says what an error of write means, and what
// was not written.
func Each(
	ctx context.Context, changes iter.Seq2[driver.Change, error], writers int,
	write func(context.Context, driver.Change) error, failed func(ctx context.Context, what string, err error) error,
) error {
	one := func(ctx context.Context, batch []driver.Change) error { return write(ctx, batch[0]) }
	return spread(ctx, changes, spreading{max(writers, 1), 2, 1}, one, failed)
}

// write writes or deletes a key.
func (t *Tenant) write(ctx context.Context, c driver.Change) error {
	switch {
	case c.Key == driver.HealthKey:
		return nil
	case c.Deleted:
		return t.delete(ctx, c.Key)
	}
	return t.put(ctx, c)
}

// Clear deletes what there is, page by page.
func (t *Tenant) Clear(ctx context.Context) error {
	if !t.Kine {
		return t.clearRanges(ctx)
	}
	for {
		page, err := Step(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return t.Client.Get(ctx, t.Prefix, clientv3.WithRange(t.end()), clientv3.WithKeysOnly(), clientv3.WithLimit(maxPage))
		})
		if err != nil {
			return t.failed(ctx, "clear", err)
		}
		n := 0
		err = Each(ctx, func(yield func(driver.Change, error) bool) {
			for _, kv := range page.Kvs {
				if key, ok := t.relative(kv.Key); ok {
					n++
					if !yield(driver.Change{Key: key, Deleted: true}, nil) {
						return
					}
				}
			}
		}, t.Writers, func(ctx context.Context, c driver.Change) error { return t.delete(ctx, c.Key) }, t.failed)
		if err != nil || n == 0 {
			return err
		}
	}
}

// spreading is how many writers there are, how many changes wait for each, and how many keys it may write at once.
type spreading struct{ writers, waiting, keys int }

// spread calls write for batches of changes, several at once, but those of one key in their order.
func spread(
	ctx context.Context, changes iter.Seq2[driver.Change, error], s spreading,
	write func(context.Context, []driver.Change) error, failed func(ctx context.Context, what string, err error) error,
) error {
	g, working := errgroup.WithContext(ctx)
	room := semaphore.NewWeighted(importBytes)
	queues := make([]chan driver.Change, s.writers)
	for i := range queues {
		queues[i] = make(chan driver.Change, s.waiting)
		g.Go(func() error {
			return batches(queues[i], s.keys, func(batch []driver.Change) error {
				if err := write(working, batch); err != nil {
					return failed(ctx, writing(batch), err)
				}
				for _, c := range batch {
					room.Release(weight(c))
				}
				return nil
			})
		})
	}
	var source error
	seed := maphash.MakeSeed()
	for c, err := range changes {
		if source = err; source != nil || room.Acquire(working, weight(c)) != nil {
			break
		}
		select {
		case queues[maphash.String(seed, c.Key)%uint64(s.writers)] <- c:
			continue
		case <-working.Done():
		}
		break
	}
	for _, q := range queues {
		close(q)
	}
	// A writer's error is why the source was stopped, if it was.
	err := errors.Join(g.Wait(), source)
	if err == nil {
		err = ctx.Err() // which may have stopped it while no writer had anything to do
	}
	return err
}

// writing says what a batch is, for errors.
func writing(batch []driver.Change) string {
	what := fmt.Sprintf("write key %.200q", batch[0].Key)
	if len(batch) > 1 {
		what += fmt.Sprintf(" and %d more", len(batch)-1)
	}
	return what
}

// weight is what a change takes of importBytes. What is larger than that waits until it is alone.
func weight(c driver.Change) int64 { return int64(min(size(c), importBytes)) }

// put writes a key, unless it is so already. Whoever else wrote it is overwritten.
func (t *Tenant) put(ctx context.Context, c driver.Change) error {
	options, err := t.options(ctx, c)
	if err != nil {
		return err
	}
	key := t.Prefix + c.Key
	for at := int64(0); ; {
		done, err := Step(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return t.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).
				Then(clientv3.OpPut(key, string(c.Value), options...)).Else(clientv3.OpGet(key)).Commit()
		})
		if err != nil || done.Succeeded {
			return err
		}
		there := present(done)
		switch {
		case there == nil:
			at = 0 // it was deleted meanwhile
			continue
		case string(there.Key) != key:
			return &driver.KeyError{Key: c.Key, Err: fmt.Errorf("this database takes it for %.200q, which is there already", there.Key)}
		case same(there, c):
			return nil
		}
		at = there.ModRevision
	}
}

// options are those by which a key is put, with a lease if it has one. A *driver.KeyError means that the database can't hold it.
func (t *Tenant) options(ctx context.Context, c driver.Change) ([]clientv3.OpOption, error) {
	if t.Fits != nil {
		if err := t.Fits(c.Key); err != nil {
			return nil, &driver.KeyError{Key: c.Key, Err: err}
		}
	}
	if c.Seconds <= 0 {
		return nil, nil
	}
	id, err := t.lease(ctx, c.Seconds)
	return []clientv3.OpOption{clientv3.WithLease(id)}, err
}

// delete deletes a key, if it is there. kine gives up when somebody else changes it at the same time.
func (t *Tenant) delete(ctx context.Context, name string) error {
	key := t.Prefix + name
	for {
		done, err := Step(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return t.Client.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpDelete(key)).Commit()
		})
		if err != nil || done.Succeeded || present(done) == nil {
			return err
		}
	}
}

// present is the key that a condition failed for, nil if it isn't there.
func present(done *clientv3.TxnResponse) *mvccpb.KeyValue {
	if len(done.Responses) == 0 {
		return nil
	}
	if r := done.Responses[0].GetResponseRange(); r != nil && len(r.Kvs) > 0 {
		return r.Kvs[0]
	}
	return nil
}
