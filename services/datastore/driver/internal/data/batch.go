package data

import (
	"bytes"
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// How much goes into one transaction of an etcd, which takes 128 operations and 1.5 MiB unless it was told otherwise. A key that is
// larger has a transaction of its own.
const (
	batchKeys  = 100
	batchBytes = 512 << 10
)

// clearPage is how many keys of an etcd are deleted at once: more would hold up other tenants.
const clearPage = 2000

// size is about how many bytes of a transaction a change takes.
func size(c driver.Change) int { return 2*len(c.Key) + len(c.Value) + 64 }

// batches calls write with what waits in a queue, until that is closed: up to so many keys, none of them twice, for etcd takes none
// twice in one transaction.
func batches(queue <-chan driver.Change, most int, write func([]driver.Change) error) error {
	c, more := <-queue
	for more {
		batch, sum, keys := []driver.Change{c}, size(c), map[string]bool{c.Key: true}
		next := false
	fill:
		for len(batch) < most {
			select {
			case c, more = <-queue:
				if next = !more || keys[c.Key] || sum+size(c) > batchBytes; next {
					break fill
				}
				batch, sum, keys[c.Key] = append(batch, c), sum+size(c), true
			default:
				break fill
			}
		}
		if err := write(batch); err != nil {
			return err
		}
		if !next {
			c, more = <-queue
		}
	}
	return nil
}

// writeBatch writes keys to an etcd by one transaction if none of them is there, as while data are copied for the first time. Else it
// reads them, too, and writes those that aren't so already. Whoever else writes them meanwhile is overwritten.
func (t *Tenant) writeBatch(ctx context.Context, batch []driver.Change) error {
	var absent []clientv3.Cmp
	var writes, reads []clientv3.Op
	for _, c := range batch {
		key := t.Prefix + c.Key
		switch {
		case c.Key == driver.HealthKey:
		case c.Deleted:
			writes = append(writes, clientv3.OpDelete(key))
		default:
			options, err := t.options(ctx, c)
			if err != nil {
				return err
			}
			absent = append(absent, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
			writes, reads = append(writes, clientv3.OpPut(key, string(c.Value), options...)), append(reads, clientv3.OpGet(key))
		}
	}
	if len(writes) == 0 {
		return nil
	}
	done, err := Step(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.Client.Txn(ctx).If(append(absent, t.guards()...)...).Then(writes...).Else(reads...).Commit()
	})
	switch {
	case len(batch) > 1 && (is(err, rpctypes.ErrTooManyOps) || is(err, rpctypes.ErrRequestTooLarge)):
		return t.writeEach(ctx, batch) // it was told to take less than others
	case err != nil || done.Succeeded:
		return err
	}
	there := map[string]*mvccpb.KeyValue{}
	for _, r := range done.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			there[string(kv.Key)] = kv
		}
	}
	return t.overwrite(ctx, batch, there)
}

// overwrite writes those keys of a batch that aren't so already.
func (t *Tenant) overwrite(ctx context.Context, batch []driver.Change, there map[string]*mvccpb.KeyValue) error {
	var writes []clientv3.Op
	for _, c := range batch {
		key := t.Prefix + c.Key
		switch kv := there[key]; {
		case c.Key == driver.HealthKey, !c.Deleted && kv != nil && same(kv, c):
		case c.Deleted:
			writes = append(writes, clientv3.OpDelete(key))
		default:
			options, err := t.options(ctx, c)
			if err != nil {
				return err
			}
			writes = append(writes, clientv3.OpPut(key, string(c.Value), options...))
		}
	}
	if len(writes) == 0 {
		return nil
	}
	return t.guarded(ctx, writes)
}

// writeEach writes the keys of a batch one by one.
func (t *Tenant) writeEach(ctx context.Context, batch []driver.Change) error {
	for _, c := range batch {
		if err := t.write(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether a key is what a change makes of it.
func same(kv *mvccpb.KeyValue, c driver.Change) bool {
	return bytes.Equal(kv.Value, c.Value) && (kv.Lease != 0) == (c.Seconds > 0)
}

func is(err, target error) bool {
	return errors.Is(err, target) || errors.Is(rpctypes.Error(err), target)
}

// clearRanges deletes an etcd's keys by ranges of them, between those that aren't the tenant's data.
func (t *Tenant) clearRanges(ctx context.Context) error {
	for from := t.Prefix; ; {
		page, err := Step(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return t.Client.Get(ctx, from, clientv3.WithRange(t.end()), clientv3.WithKeysOnly(), clientv3.WithLimit(clearPage))
		})
		if err != nil {
			return t.failed(ctx, "clear", err)
		}
		var deletes []clientv3.Op
		first := ""
		for _, kv := range page.Kvs {
			_, ours := t.relative(kv.Key)
			if first == "" && ours {
				first = string(kv.Key)
			}
			from = string(kv.Key) + "\x00"
			if !ours && first != "" {
				deletes, first = append(deletes, clientv3.OpDelete(first, clientv3.WithRange(string(kv.Key)))), ""
			}
		}
		if first != "" {
			deletes = append(deletes, clientv3.OpDelete(first, clientv3.WithRange(from)))
		}
		if len(deletes) > 0 {
			err = t.guarded(ctx, deletes)
		}
		if err != nil || !page.More {
			return t.failed(ctx, "clear", err)
		}
	}
}
