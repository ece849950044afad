package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

var _ driver.Joint = (*etcd)(nil)

// Joins compares authorities: a tenant's certificate is signed by this one's, which the other etcd must trust, and the other's
// servers are verified by what is in this one's file. While an authority replaces another, both may be in both files.
func (e *etcd) Joins(other driver.Driver) bool {
	o, ok := other.(*etcd)
	return ok && o.ca.Trusts(e.ca) && e.ca.Trusts(o.ca)
}

// Place is the cluster and when the owner was recorded there: clusters that were set up alike may have one id.
func (e *etcd) Place(ctx context.Context, a driver.Account) (string, error) {
	schema, _ := ownerKeys(a)
	got, err := within(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return e.client.Get(ctx, schema) })
	if err != nil {
		return "", e.classify(ctx, err)
	}
	for _, kv := range got.Kvs {
		if string(kv.Value) == a.Owner {
			return fmt.Sprintf("%x at %d", got.Header.ClusterId, kv.CreateRevision), nil
		}
	}
	return "", nil
}
