// Package etcdauth turns on the authentication of an etcd cluster.
package etcdauth

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Root is the user, and its role, that etcd requires before it can authenticate clients.
const Root = "root"

// Enable makes etcd authenticate its clients by the common names of their certificates. The client's certificate has the common name root.
// Enable completes a run that was interrupted, and changes nothing when authentication is on. Its errors are the client's.
// Source: etcd.io/docs, "Role-based access control".
func Enable(ctx context.Context, client *clientv3.Client) error {
	status, err := client.AuthStatus(ctx)
	if err != nil || status.Enabled {
		return err
	}
	if _, err := client.RoleAdd(ctx, Root); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return err
	}
	_, err = client.UserAddWithOptions(ctx, Root, "", &clientv3.UserAddOptions{NoPassword: true})
	if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		return err
	}
	if _, err := client.UserGrantRole(ctx, Root, Root); err != nil {
		return err
	}
	_, err = client.AuthEnable(ctx)
	return err
}
