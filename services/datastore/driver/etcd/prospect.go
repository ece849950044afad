package etcd

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

var (
	_ driver.Roomer   = (*etcd)(nil)
	_ driver.ByWrites = (*etcd)(nil)
)

// Room is that of the member with the least left, among those that answer. etcd tells its quota since v3.6. Pages of the file that are free
// count as room: etcd writes to them before the file grows.
func (e *etcd) Room(ctx context.Context) (used, quota int64, err error) {
	var failed []error
	answered := false
	for _, endpoint := range e.client.Endpoints() {
		status, err := within(ctx, func(ctx context.Context) (*clientv3.StatusResponse, error) { return e.client.Status(ctx, endpoint) })
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if !answered || status.DbSizeQuota-status.DbSizeInUse < quota-used {
			used, quota = status.DbSizeInUse, status.DbSizeQuota
		}
		answered = true
	}
	if !answered {
		return 0, 0, e.classify(ctx, errors.Join(failed...))
	}
	return used, quota, nil
}

// Revision is that of the whole etcd, which all tenants share.
func (e *etcd) Revision(ctx context.Context, _ driver.Account) (int64, error) {
	got, err := within(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return e.client.Get(ctx, raiseKey) })
	if err != nil {
		return 0, e.classify(ctx, err)
	}
	return got.Header.Revision, nil
}

// RaiseMost is raiseMost, at about the rate that it was measured with.
func (e *etcd) RaiseMost() (revisions, perSecond int64) { return raiseMost, raisePerSecond }
