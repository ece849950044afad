package data

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Record reads a record of a move.
func (t *Tenant) Record(ctx context.Context, key string) (value []byte, revision int64, err error) {
	got, err := Step(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return t.Client.Get(ctx, t.Prefix+key) })
	if err != nil || len(got.Kvs) == 0 {
		return nil, 0, t.failed(ctx, "read the record of a move", err)
	}
	return got.Kvs[0].Value, got.Kvs[0].ModRevision, nil
}

// Value returns what a key holds.
func (t *Tenant) Value(ctx context.Context, key string) ([]byte, error) {
	value, _, err := t.Record(ctx, key)
	return value, err
}

// SetRecord writes a record of a move.
func (t *Tenant) SetRecord(ctx context.Context, key string, value []byte, revision int64) (int64, error) {
	key = t.Prefix + key
	done, err := Step(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, string(value))).Else(clientv3.OpGet(key)).Commit()
	})
	switch {
	case err != nil:
		return 0, t.failed(ctx, "write the record of a move", err)
	case !done.Succeeded:
		return 0, driver.ErrRaced
	}
	return done.Header.Revision, nil
}

// GateRecords are those of gates, by key.
func (t *Tenant) GateRecords(ctx context.Context) (map[string][]byte, error) {
	got, err := Step(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return t.Client.Get(ctx, t.Prefix+driver.GateKeys, clientv3.WithPrefix())
	})
	if err != nil {
		return nil, t.failed(ctx, "read the records of gates", err)
	}
	all := map[string][]byte{}
	for _, kv := range got.Kvs {
		all[strings.TrimPrefix(string(kv.Key), t.Prefix)] = kv.Value
	}
	return all, nil
}

// Guard has an etcd take nothing from Import and Clear once the record of a move is another.
func (t *Tenant) Guard(revision int64) { t.guard.Store(revision) }

// guards are the conditions on which an etcd is written.
func (t *Tenant) guards() []clientv3.Cmp {
	if revision := t.guard.Load(); revision != 0 {
		return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(t.Prefix+driver.MoveKey), "=", revision)}
	}
	return nil
}

// guarded writes to an etcd. driver.ErrRaced means that the record of the move is another.
func (t *Tenant) guarded(ctx context.Context, writes []clientv3.Op) error {
	done, err := Step(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.Client.Txn(ctx).If(t.guards()...).Then(writes...).Commit()
	})
	if err == nil && !done.Succeeded {
		err = driver.ErrRaced
	}
	return err
}

// DeleteRecord deletes a record.
func (t *Tenant) DeleteRecord(ctx context.Context, key string) error {
	return t.failed(ctx, "delete the record of a move", t.delete(ctx, key))
}
