package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

var _ driver.Sizer = (*etcd)(nil)

// A tenant's keys are weighed by a few of them, taken here and there: names of resources begin with all of the alphabet.
var sampledAt = []string{"", "d", "m", "s"}

const sampled = 16

// Sizes counts the keys of each tenant, which etcd does in memory, and shares out the file among the tenants: by their
// keys, and by what a few of these weigh. So history that isn't compacted yet counts, too.
func (e *etcd) Sizes(ctx context.Context) (map[string]driver.Size, error) {
	sizes, err := e.sizes(ctx)
	return sizes, e.classify(ctx, err)
}

func (e *etcd) sizes(ctx context.Context) (map[string]driver.Size, error) {
	prefixed := ownerPrefix + "schema/"
	owners, err := e.ask(ctx, clientv3.OpGet(prefixed, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSerializable()))
	if err != nil {
		return nil, err
	}
	sizes, weights, all := map[string]driver.Size{}, map[string]float64{}, 0.0
	for _, kv := range owners[0].GetResponseRange().Kvs {
		schema := strings.TrimPrefix(string(kv.Key), prefixed)
		from, to := prefix(schema)
		ops := []clientv3.Op{clientv3.OpGet(from, clientv3.WithRange(to), clientv3.WithCountOnly(), clientv3.WithSerializable())}
		for _, at := range sampledAt {
			ops = append(ops, clientv3.OpGet(from+at, clientv3.WithRange(to), clientv3.WithLimit(sampled), clientv3.WithSerializable()))
		}
		got, err := e.ask(ctx, ops...)
		if err != nil {
			return nil, err
		}
		seen, bytes := 0, 0
		for _, r := range got[1:] {
			for _, kv := range r.GetResponseRange().Kvs {
				seen, bytes = seen+1, bytes+len(kv.Key)+len(kv.Value)
			}
		}
		keys := got[0].GetResponseRange().Count
		sizes[schema] = driver.Size{Keys: keys}
		weights[schema] = float64(keys) * float64(bytes) / float64(max(seen, 1))
		all += weights[schema]
	}
	used, err := e.used(ctx)
	if err != nil {
		return nil, err
	}
	for schema, size := range sizes {
		if all > 0 {
			size.Bytes = int64(float64(used) * weights[schema] / all)
		}
		sizes[schema] = size
	}
	return sizes, nil
}

// ask reads from whichever member the client is connected to: what it is late by does no harm.
func (e *etcd) ask(ctx context.Context, ops ...clientv3.Op) ([]*etcdserverpb.ResponseOp, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	done, err := e.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, err
	}
	return done.Responses, nil
}

// used is how much of the file is in use, as the first member says that answers.
func (e *etcd) used(ctx context.Context) (bytes int64, err error) {
	for _, endpoint := range e.client.Endpoints() {
		var status *clientv3.StatusResponse
		status, err = func() (*clientv3.StatusResponse, error) {
			ctx, cancel := context.WithTimeout(ctx, limit.Step)
			defer cancel()
			return e.client.Status(ctx, endpoint)
		}()
		if err == nil {
			return status.DbSizeInUse, nil
		}
	}
	return 0, err
}
