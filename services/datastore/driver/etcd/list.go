package etcd

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
)

var _ driver.Lister = (*etcd)(nil)

// Accounts reads the keys of owners.
func (e *etcd) Accounts(ctx context.Context) ([]driver.Account, error) {
	schemas, users, err := e.records(ctx)
	return owner.List(schemas, users), e.classify(ctx, err)
}

// records are the owners of all schemas and users, by name.
func (e *etcd) records(ctx context.Context) (schemas, users map[string]string, err error) {
	got, err := within(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return e.client.Get(ctx, ownerPrefix, clientv3.WithPrefix())
	})
	if err != nil {
		return nil, nil, err
	}
	schemas, users = map[string]string{}, map[string]string{}
	for _, kv := range got.Kvs {
		switch kind, n, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), ownerPrefix), "/"); kind {
		case "schema":
			schemas[n] = string(kv.Value)
		case "user":
			users[n] = string(kv.Value)
		}
	}
	return schemas, users, nil
}
