package etcd

import (
	"context"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// raiseKey is written again and again to raise the revision. No tenant's range has it (ownerPrefix).
const raiseKey = "stoker.dev/raise"

const (
	// raiseMost is how many revisions are made up for by writes. Measured on two busy cores were 5,000 to 9,000 a second, so that these take
	// some five minutes, and 70 bytes of etcd's file for each, which compaction gives back to etcd.
	raiseMost = 2_000_000
	// raisePerSecond is about how many are made up for in a second.
	raisePerSecond = 7_000
	// raiseWriters is how many write at once.
	raiseWriters = 64
)

// Raise writes a key of the administrator's, for revisions are the whole etcd's and grow by writes alone. It also cuts off what other
// tenants have of their history up to there, as Compact does minutes later.
func (e *etcd) Raise(ctx context.Context, a driver.Account, _ driver.Access, above int64) error {
	if err := e.validate(a); err != nil {
		return err
	}
	now, err := within(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return e.client.Get(ctx, raiseKey) })
	if err != nil {
		return e.classify(ctx, err)
	}
	upTo := driver.Compacted(above)
	if upTo-now.Header.Revision > raiseMost {
		return &driver.BehindError{Above: above, Now: now.Header.Revision}
	}
	s := step.New(ctx, e.held)
	if now.Header.Revision < upTo {
		s.Do("raise the revision", func(ctx context.Context) error { return e.writeUpTo(ctx, upTo) })
	}
	if now.Header.Revision < upTo || now.Count > 0 {
		s.Do("delete the key that raised it", func(ctx context.Context) error {
			_, err := within(ctx, func(ctx context.Context) (*clientv3.DeleteResponse, error) { return e.client.Delete(ctx, raiseKey) })
			return err
		})
	}
	s.Do("compact", func(ctx context.Context) error {
		_, err := within(ctx, func(ctx context.Context) (*clientv3.CompactResponse, error) { return e.client.Compact(ctx, upTo) })
		return except(err, rpctypes.ErrCompacted)
	})
	return e.classify(ctx, s.Err())
}

// writeUpTo writes until a revision is reached.
func (e *etcd) writeUpTo(ctx context.Context, revision int64) error {
	var reached atomic.Int64
	g, writing := errgroup.WithContext(ctx)
	for range raiseWriters {
		g.Go(func() error {
			for reached.Load() < revision {
				if err := e.held(writing); err != nil {
					return err
				}
				done, err := within(writing, func(ctx context.Context) (*clientv3.PutResponse, error) { return e.client.Put(ctx, raiseKey, "") })
				if err != nil {
					return err
				}
				for at := reached.Load(); at < done.Header.Revision && !reached.CompareAndSwap(at, done.Header.Revision); at = reached.Load() {
				}
			}
			return nil
		})
	}
	return g.Wait()
}
