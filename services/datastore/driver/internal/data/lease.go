package data

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases that are known, so that each is asked for, and made, once. An API server gives one to all keys of a minute.
type leases struct {
	sync.Mutex
	ends map[clientv3.LeaseID]time.Time // of those read
	made map[int64]clientv3.LeaseID     // of those written, by the Unix second of their end
}

// seconds are those that a lease has left, 0 for none. One that has ended has its last second: the key's deletion is
// still to be followed.
func (t *Tenant) seconds(ctx context.Context, lease int64) (int64, error) {
	if lease == 0 || t.Kine {
		return lease, nil
	}
	id := clientv3.LeaseID(lease)
	t.leases.Lock()
	end, known := t.leases.ends[id]
	t.leases.Unlock()
	if !known {
		left, err := Step(ctx, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return t.Client.TimeToLive(ctx, id)
		})
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			end = time.Now()
		case err != nil:
			return 0, err
		default:
			end = time.Now().Add(time.Duration(left.TTL) * time.Second)
		}
		t.leases.Lock()
		if t.leases.ends == nil {
			t.leases.ends = map[clientv3.LeaseID]time.Time{}
		}
		t.leases.ends[id] = end
		t.leases.Unlock()
	}
	return max(int64(time.Until(end).Round(time.Second)/time.Second), 1), nil
}

// lease is one that ends in so many seconds, the same for all that end in the same second.
func (t *Tenant) lease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	end := time.Now().Unix() + seconds
	t.leases.Lock()
	defer t.leases.Unlock() // also while one is made, which others are likely to want
	if id, made := t.leases.made[end]; made {
		return id, nil
	}
	granted, err := Step(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) { return t.Client.Grant(ctx, seconds) })
	if err != nil {
		return 0, err
	}
	if t.leases.made == nil {
		t.leases.made = map[int64]clientv3.LeaseID{}
	}
	for old := range t.leases.made {
		if old < time.Now().Unix() {
			delete(t.leases.made, old)
		}
	}
	t.leases.made[end] = granted.ID
	return granted.ID, nil
}
