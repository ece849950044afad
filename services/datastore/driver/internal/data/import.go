package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// writers is how many keys are written at once, waiting how many more wait for each writer.
const (
	writers = 16
	waiting = 2
)

// Import hands each key's changes to one writer, which writes them in their order.
func (t *Tenant) Import(ctx context.Context, changes iter.Seq2[driver.Change, error]) error {
	return t.spread(ctx, changes, func(ctx context.Context, c driver.Change) error {
		if c.Key == driver.HealthKey {
			return nil
		}
		if c.Deleted {
			return t.delete(ctx, c.Key)
		}
		return t.put(ctx, c)
	})
}

// Clear deletes what there is, page by page.
func (t *Tenant) Clear(ctx context.Context) error {
	for {
		page, err := step(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return t.Client.Get(ctx, t.Prefix, clientv3.WithRange(t.end()), clientv3.WithKeysOnly(), clientv3.WithLimit(maxPage))
		})
		if err != nil {
			return t.failed(ctx, "clear", err)
		}
		n := 0
		err = t.spread(ctx, func(yield func(driver.Change, error) bool) {
			for _, kv := range page.Kvs {
				if key, ok := t.relative(kv.Key); ok {
					n++
					if !yield(driver.Change{Key: key, Deleted: true}, nil) {
						return
					}
				}
			}
		}, func(ctx context.Context, c driver.Change) error { return t.delete(ctx, c.Key) })
		if err != nil || n == 0 {
			return err
		}
	}
}

func (t *Tenant) spread(ctx context.Context, changes iter.Seq2[driver.Change, error], write func(context.Context, driver.Change) error) error {
	g, working := errgroup.WithContext(ctx)
	var queues [writers]chan driver.Change
	for i := range queues {
		queues[i] = make(chan driver.Change, waiting)
		g.Go(func() error {
			for c := range queues[i] {
				if err := write(working, c); err != nil {
					return t.failed(ctx, fmt.Sprintf("write key %.200q", c.Key), err)
				}
			}
			return nil
		})
	}
	var source error
	seed := maphash.MakeSeed()
	for c, err := range changes {
		if source = err; source != nil {
			break
		}
		select {
		case queues[maphash.String(seed, c.Key)%writers] <- c:
			continue
		case <-working.Done():
		}
		break
	}
	for _, q := range queues {
		close(q)
	}
	// A writer's error is why the source was stopped, if it was.
	return errors.Join(g.Wait(), source)
}

// put writes a key, unless it is so already. Whoever else wrote it is overwritten.
func (t *Tenant) put(ctx context.Context, c driver.Change) error {
	if t.Fits != nil {
		if err := t.Fits(c.Key); err != nil {
			return &driver.KeyError{Key: c.Key, Err: err}
		}
	}
	var options []clientv3.OpOption
	if c.Seconds > 0 {
		id, err := t.lease(ctx, c.Seconds)
		if err != nil {
			return err
		}
		options = append(options, clientv3.WithLease(id))
	}
	key := t.Prefix + c.Key
	for at := int64(0); ; {
		done, err := step(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
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
		case bytes.Equal(there.Value, c.Value) && (there.Lease != 0) == (c.Seconds > 0):
			return nil
		}
		at = there.ModRevision
	}
}

// delete deletes a key, if it is there. kine gives up when somebody else changes it at the same time.
func (t *Tenant) delete(ctx context.Context, name string) error {
	key := t.Prefix + name
	for {
		done, err := step(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
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
