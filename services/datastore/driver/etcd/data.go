package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/data"
)

var _ driver.DataAccess = (*etcd)(nil)

// Data connects as the tenant's API server does, and looks that it is let in.
func (e *etcd) Data(ctx context.Context, a driver.Account, access driver.Access) (driver.Data, error) {
	if err := e.Validate(a); err != nil {
		return nil, err
	}
	c := driver.Config{CA: access.CA, ClientCert: access.Cert, ClientKey: access.Key}
	ca, err := authority.New(c)
	if err != nil {
		return nil, err
	}
	config, _, err := ca.TLS(c)
	if err != nil {
		return nil, err
	}
	client, err := connect(e.endpoints, config)
	if err != nil {
		return nil, err
	}
	from, _ := prefix(a.Schema)
	_, err = within(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return client.Get(ctx, from, clientv3.WithKeysOnly())
	})
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("open the data of user %s: %w", a.User, e.classify(ctx, err))
	}
	return &data.Tenant{Client: client, Prefix: from, Classify: e.classify}, nil
}
