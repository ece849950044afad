package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
)

func TestContract(t *testing.T) {
	server := etcdserver.Start(t)
	d, err := etcd.Open(server.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	root := server.Root
	check := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	readWrite := clientv3.PermissionType(clientv3.PermReadWrite)
	drifts := map[string]func(t *testing.T, a driver.Account){
		"the user is deleted": func(t *testing.T, a driver.Account) {
			_, err := root.UserDelete(t.Context(), a.User)
			check(t, err)
		},
		"the role is deleted": func(t *testing.T, a driver.Account) {
			_, err := root.RoleDelete(t.Context(), a.Schema)
			check(t, err)
		},
		"the user has lost the role": func(t *testing.T, a driver.Account) {
			_, err := root.UserRevokeRole(t.Context(), a.User, a.Schema)
			check(t, err)
		},
		"the role may only read": func(t *testing.T, a driver.Account) {
			_, err := root.RoleGrantPermission(t.Context(), a.Schema, "/drift/", "/drift0", clientv3.PermissionType(clientv3.PermRead))
			check(t, err)
		},
		"the role may touch more": func(t *testing.T, a driver.Account) {
			_, err := root.RoleGrantPermission(t.Context(), a.Schema, "/", "0", readWrite)
			check(t, err)
		},
		"the role covers another range": func(t *testing.T, a driver.Account) {
			_, err := root.RoleRevokePermission(t.Context(), a.Schema, "/drift/", "/drift0")
			check(t, err)
			_, err = root.RoleGrantPermission(t.Context(), a.Schema, "/drift", "/drifu", readWrite)
			check(t, err)
		},
		"the role doesn't see up to where etcd is compacted": func(t *testing.T, a driver.Account) {
			_, err := root.RoleRevokePermission(t.Context(), a.Schema, "compact_rev_key", "")
			check(t, err)
		},
		"the role may say up to where etcd is compacted": func(t *testing.T, a driver.Account) {
			_, err := root.RoleGrantPermission(t.Context(), a.Schema, "compact_rev_key", "", readWrite)
			check(t, err)
		},
		"the user is an administrator": func(t *testing.T, a driver.Account) {
			_, err := root.UserGrantRole(t.Context(), a.User, "root")
			check(t, err)
		},
	}
	drivertest.Run(t, drivertest.Server{
		Driver: d,
		Connect: func(t *testing.T, _ driver.Account, access driver.Access) drivertest.Tenant {
			return tenant{server.Connect(t, access.Cert, access.Key)}
		},
		Denied: func(err error) bool { return errors.Is(err, rpctypes.ErrPermissionDenied) },
		Revision: func(t *testing.T) string {
			status, err := root.AuthStatus(t.Context())
			check(t, err)
			return fmt.Sprintf("%d of users, %d of keys", status.AuthRevision, status.Header.Revision)
		},
		Holds: func(t *testing.T, a driver.Account) (held []string) {
			if user, err := root.UserGet(t.Context(), a.User); err == nil {
				held = append(held, fmt.Sprint("user with roles ", user.Roles))
			}
			if role, err := root.RoleGet(t.Context(), a.Schema); err == nil {
				held = append(held, fmt.Sprint("role with permissions ", role.Perm))
			}
			keys, err := root.Get(t.Context(), "/"+a.Schema+"/", clientv3.WithPrefix())
			check(t, err)
			for _, key := range ownerKeys(a) {
				owner, err := root.Get(t.Context(), key)
				check(t, err)
				keys.Kvs = append(keys.Kvs, owner.Kvs...)
			}
			for _, kv := range keys.Kvs {
				held = append(held, fmt.Sprintf("%s = %s", kv.Key, kv.Value))
			}
			return held
		},
		Removes: func(keys int) driver.Removed {
			return driver.Removed{"Key": keys, "Role": 1, "User": 1, driver.RemovedOwner: 2}
		},
		ReservedSchemas: []string{"root"}, ReservedUsers: []string{"root"},
		Drifts: drifts, Lasting: true,
		Disown: func(t *testing.T, a driver.Account) {
			for _, key := range ownerKeys(a) {
				if done, err := root.Delete(t.Context(), key); err != nil || done.Deleted != 1 {
					t.Fatalf("there was no %s: %v", key, err)
				}
			}
		},
		CrashAfter: func(n int) {
			var left atomic.Int64
			left.Store(int64(n))
			etcd.SetHeld(d, func(context.Context) error {
				if n >= 0 && left.Add(-1) < 0 {
					return errors.New("crashed")
				}
				return nil
			})
		},
		Stop:  func(t *testing.T) { server.Kill(t) },
		Start: func(t *testing.T) { server.Run(t) },
	})
	t.Run("names that etcd's operator uses otherwise are not for tenants", func(t *testing.T) {
		_, err := root.UserAddWithOptions(t.Context(), "backup", "", &clientv3.UserAddOptions{NoPassword: true})
		check(t, err)
		_, err = root.UserGrantRole(t.Context(), "backup", "root")
		check(t, err)
		_, err = root.RoleAdd(t.Context(), "all")
		check(t, err)
		_, err = root.RoleGrantPermission(t.Context(), "all", "/", "0", readWrite)
		check(t, err)
		_, err = root.Put(t.Context(), "/registry/pods/a", "")
		check(t, err)
		for _, a := range []driver.Account{
			{Owner: "uid", Schema: "registry", User: "fine"}, {Owner: "uid", Schema: "all", User: "fine"}, {Owner: "uid", Schema: "fine", User: "backup"},
		} {
			var taken *driver.TakenError
			if _, err := d.Provision(t.Context(), a); !errors.As(err, &taken) || taken.Message != driver.TakenByOthers {
				t.Errorf("%s, %s: %v", a.Schema, a.User, err)
			}
			if removed, err := d.Drop(t.Context(), a); err != nil || len(removed) > 0 {
				t.Errorf("%s, %s: removed %v: %v", a.Schema, a.User, removed, err)
			}
		}
		_, err = root.Delete(t.Context(), "/registry/pods/a")
		check(t, err)
	})
	t.Run("no owner is left on record when all are dropped", func(t *testing.T) {
		left, err := root.Get(t.Context(), "", clientv3.WithFromKey(), clientv3.WithKeysOnly())
		check(t, err)
		for _, kv := range left.Kvs {
			t.Errorf("left: %s", kv.Key)
		}
	})
	t.Run("an etcd that doesn't know the client's certificate counts as away", func(t *testing.T) {
		other := etcdserver.NewAuthority(t, server.CA.Key)
		cfg := server.Config(t)
		cfg.ClientCert, cfg.ClientKey = other.Issue(t, "nobody")
		d, err := etcd.Open(cfg)
		check(t, err)
		defer func() { _ = d.Close() }()
		if err := d.Check(t.Context()); !errors.Is(err, driver.ErrAway) {
			t.Error(err)
		}
	})
	t.Run("many pages of keys are deleted, and none of the neighbour's", func(t *testing.T) {
		a := driver.Account{Owner: "uid", Schema: "big", User: "big"}
		_, err := d.Provision(t.Context(), a)
		check(t, err)
		for _, schema := range []string{"big", "bigger"} {
			for i := range 60 {
				ops := []clientv3.Op{}
				for j := range 100 {
					ops = append(ops, clientv3.OpPut(fmt.Sprintf("/%s/%d/%d", schema, i, j), "value"))
				}
				_, err := root.Txn(t.Context()).Then(ops...).Commit()
				check(t, err)
			}
		}
		removed, err := d.Drop(t.Context(), a)
		check(t, err)
		if removed["Key"] != 6000 {
			t.Errorf("removed %v", removed)
		}
		left, err := root.Get(t.Context(), "", clientv3.WithFromKey(), clientv3.WithCountOnly())
		check(t, err)
		if left.Count != 6000 {
			t.Errorf("%d keys left", left.Count)
		}
	})
	t.Run("an etcd without authentication counts as away and the message says what to do", func(t *testing.T) {
		_, err := root.AuthDisable(t.Context())
		check(t, err)
		if err := d.Check(t.Context()); !errors.Is(err, driver.ErrAway) {
			t.Error(err)
		}
	})
}

func ownerKeys(a driver.Account) []string {
	return []string{"stoker.dev/owner/schema/" + a.Schema, "stoker.dev/owner/user/" + a.User}
}

// tenant is a connection with a tenant's certificate.
type tenant struct{ c *clientv3.Client }

func (c tenant) Write(ctx context.Context, schema, key, value string) error {
	_, err := c.c.Put(ctx, "/"+schema+"/"+key, value)
	return err
}

func (c tenant) Read(ctx context.Context, schema, key string) (string, error) {
	got, err := c.c.Get(ctx, "/"+schema+"/"+key)
	if err != nil {
		return "", err
	}
	if len(got.Kvs) == 0 {
		return "", errors.New("no such key")
	}
	return string(got.Kvs[0].Value), nil
}

func (c tenant) Administer(ctx context.Context) map[string]error {
	_, all := c.c.Get(ctx, "/", clientv3.WithPrefix())
	_, owners := c.c.Get(ctx, "stoker.dev/", clientv3.WithPrefix())
	_, owner := c.c.Put(ctx, "stoker.dev/owner/schema/x", "intruder")
	_, compacted := c.c.Put(ctx, "compact_rev_key", "1")
	_, user := c.c.UserAdd(ctx, "intruder", "password")
	return map[string]error{"reads all": all, "says up to where etcd is compacted": compacted, "reads who owns what": owners, "says who owns what": owner, "adds a user": user}
}
