package etcd

import (
	"context"
	"strconv"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

// compactRevKey is where whoever compacts an etcd says up to which revision, in decimal. API servers read it to know which tokens of a
// list's pages have expired, and its version decides who compacts (k8s.io/apiserver/pkg/storage/etcd3/compact.go).
const compactRevKey = "compact_rev_key"

var _ driver.Compactor = (*etcd)(nil)

// compaction is what the call before found: the version of compactRevKey, and the revision of etcd then. Its lock is held by one call.
type compaction struct {
	sync.Mutex
	version, revision int64
	// compacted is the last revision that was compacted by Compact, defragmented the one that was when a member was defragmented, by its endpoint.
	compacted    int64
	defragmented map[string]int64
}

// Compact does what an API server does with an etcd of its own, by the same rule, so that any number of them and of replicas of this
// service compact one etcd no more often than one of them alone: who finds the key as it was the time before writes it and compacts.
// Then it defragments what must be (defragment.go).
func (e *etcd) Compact(ctx context.Context) (did string, err error) {
	e.compaction.Lock()
	defer e.compaction.Unlock()
	if err := e.compact(ctx); err != nil {
		return "", err
	}
	did, err = e.defragment(ctx)
	return did, e.classify(ctx, err)
}

func (e *etcd) compact(ctx context.Context) error {
	upTo := e.compaction.revision
	var options []clientv3.CompactOption
	patience := limit.Step
	done, err := e.takeTurn(ctx, upTo)
	switch {
	case is(err, rpctypes.ErrNoSpace):
		// It is full and takes no key, but compacts, without which deletions make no room.
		now, err := within(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return e.client.Get(ctx, compactRevKey) })
		if err != nil {
			return e.classify(ctx, err)
		}
		e.compaction.revision = now.Header.Revision
		options, patience = append(options, clientv3.WithCompactPhysical()), defragmentTimeout // so that it can be defragmented then
	case err != nil:
		return e.classify(ctx, err)
	case done.Succeeded:
		e.compaction.version, e.compaction.revision = e.compaction.version+1, done.Header.Revision
	default: // somebody else compacts, or did
		e.compaction.version, e.compaction.revision = 0, done.Header.Revision
		for _, kv := range done.Responses[0].GetResponseRange().Kvs {
			e.compaction.version = kv.Version
		}
		return nil
	}
	if upTo == 0 {
		return nil
	}
	compacting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = e.client.Compact(compacting, upTo, options...)
	if err = except(err, rpctypes.ErrCompacted); err == nil {
		e.compaction.compacted = upTo
	}
	return e.classify(ctx, err)
}

// takeTurn writes to the key up to where the caller compacts, unless somebody else has written it since the call before.
func (e *etcd) takeTurn(ctx context.Context, upTo int64) (*clientv3.TxnResponse, error) {
	return within(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return e.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(compactRevKey), "=", e.compaction.version)).
			Then(clientv3.OpPut(compactRevKey, strconv.FormatInt(upTo, 10))).
			Else(clientv3.OpGet(compactRevKey)).Commit()
	})
}
