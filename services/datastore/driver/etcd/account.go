package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// deletePage is how many keys are deleted by one request: a bigger one would hold up the other tenants.
const deletePage = 5000

// prefix is the exact range of an account's keys: from itself to the first key that doesn't start with it. It ends in a
// slash, so that "ab" never covers what is of "abc"; '0' is the byte after it.
func prefix(schema string) (from, to string) { return "/" + schema + "/", "/" + schema + "0" }

// Provision makes role and user what they should be. It looks first: each change of etcd's users makes it evaluate
// the rights of every request under way again.
func (e *etcd) Provision(ctx context.Context, a driver.Account) ([]string, error) {
	if err := e.Validate(a); err != nil {
		return nil, err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	role, user, err := e.read(ctx, a)
	if err != nil {
		return nil, e.classify(parent, err)
	}
	// Role and user don't need each other until the user gets the role.
	ofRole, ofUser := writer{ctx: ctx}, writer{ctx: ctx}
	var g errgroup.Group
	g.Go(func() error { ofRole.role(e.client, a, role); return ofRole.err })
	g.Go(func() error { ofUser.user(e.client, a, user); return ofUser.err })
	err = g.Wait()
	w := writer{ctx: ctx, changed: append(ofRole.changed, ofUser.changed...), err: err}
	if user == nil || !slices.Contains(user.Roles, a.Schema) {
		w.do("role granted to the user", func() error {
			_, err := e.client.UserGrantRole(ctx, a.User, a.Schema)
			return err
		})
	}
	return w.changed, e.classify(parent, w.err)
}

// read asks for role and user side by side; what is not there is nil.
func (e *etcd) read(ctx context.Context, a driver.Account) (role *clientv3.AuthRoleGetResponse, user *clientv3.AuthUserGetResponse, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		role, err = e.client.RoleGet(ctx, a.Schema)
		if is(err, rpctypes.ErrRoleNotFound) {
			role, err = nil, nil
		}
		return err
	})
	g.Go(func() (err error) {
		user, err = e.client.UserGet(ctx, a.User)
		if is(err, rpctypes.ErrUserNotFound) {
			user, err = nil, nil
		}
		return err
	})
	return role, user, g.Wait()
}

// writer does changes one after the other until one fails, and notes them.
type writer struct {
	ctx     context.Context //nolint:containedctx // of one call of Provision or Drop
	changed []string
	err     error
}

func (w *writer) do(what string, change func() error) {
	if w.err == nil {
		w.err = events.Held(w.ctx)
	}
	if w.err != nil {
		return
	}
	if err := change(); err != nil {
		w.err = fmt.Errorf("%s: %w", what, err)
		return
	}
	w.changed = append(w.changed, what)
}

// role gives the role the one permission it should have and takes all others.
func (w *writer) role(c *clientv3.Client, a driver.Account, role *clientv3.AuthRoleGetResponse) {
	from, to := prefix(a.Schema)
	has := false
	if role == nil {
		w.do("role made", func() error {
			_, err := c.RoleAdd(w.ctx, a.Schema)
			return except(err, rpctypes.ErrRoleAlreadyExist)
		})
	} else {
		for _, p := range role.Perm {
			if string(p.Key) == from && string(p.RangeEnd) == to {
				has = p.PermType == authpb.READWRITE
				continue
			}
			w.do(fmt.Sprintf("permission on %q to %q taken from the role", p.Key, p.RangeEnd), func() error {
				_, err := c.RoleRevokePermission(w.ctx, a.Schema, string(p.Key), string(p.RangeEnd))
				return except(err, rpctypes.ErrPermissionNotGranted)
			})
		}
	}
	if !has {
		w.do("permission given to the role", func() error {
			_, err := c.RoleGrantPermission(w.ctx, a.Schema, from, to, clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		})
	}
}

// user makes the user and takes from it what is not its own role.
func (w *writer) user(c *clientv3.Client, a driver.Account, user *clientv3.AuthUserGetResponse) {
	if user == nil {
		w.do("user made", func() error {
			_, err := c.UserAddWithOptions(w.ctx, a.User, "", &clientv3.UserAddOptions{NoPassword: true})
			return except(err, rpctypes.ErrUserAlreadyExist)
		})
		return
	}
	for _, r := range user.Roles {
		if r == a.Schema {
			continue
		}
		w.do("role "+r+" taken from the user", func() error {
			_, err := c.UserRevokeRole(w.ctx, a.User, r)
			return except(err, rpctypes.ErrRoleNotGranted)
		})
	}
}

// Drop removes the user first, so that a process of the tenant that still runs somewhere can't write again what is being
// deleted, then the role, then the keys, and looks that none is left.
func (e *etcd) Drop(ctx context.Context, a driver.Account) (driver.Removed, error) {
	removed := driver.Removed{}
	if err := e.Validate(a); err != nil {
		return removed, err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	w := writer{ctx: ctx}
	w.do("delete the user", func() error {
		_, err := e.client.UserDelete(ctx, a.User)
		return count(removed, "User", err, rpctypes.ErrUserNotFound)
	})
	w.do("delete the role", func() error {
		_, err := e.client.RoleDelete(ctx, a.Schema)
		return count(removed, "Role", err, rpctypes.ErrRoleNotFound)
	})
	for left := true; left && w.err == nil; {
		w.do("delete the keys", func() (err error) {
			left, err = e.deleteKeys(parent, a.Schema, removed)
			return err
		})
	}
	return removed, e.classify(parent, w.err)
}

// deleteKeys deletes a page of keys and reports whether there are more.
func (e *etcd) deleteKeys(ctx context.Context, schema string, removed driver.Removed) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	from, to := prefix(schema)
	page, err := e.client.Get(ctx, from, clientv3.WithRange(to), clientv3.WithKeysOnly(), clientv3.WithLimit(deletePage))
	if err != nil || len(page.Kvs) == 0 {
		return false, err
	}
	end := to
	if page.More {
		end = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	done, err := e.client.Txn(ctx).Then(
		clientv3.OpDelete(from, clientv3.WithRange(end)),
		clientv3.OpGet(from, clientv3.WithRange(to), clientv3.WithCountOnly()),
	).Commit()
	if err != nil {
		return true, err
	}
	removed["Key"] += int(done.Responses[0].GetResponseDeleteRange().GetDeleted())
	return done.Responses[1].GetResponseRange().GetCount() > 0, nil
}

// count notes one thing of a kind as removed, unless it was not there.
func count(removed driver.Removed, kind string, err, absent error) error {
	if err == nil {
		removed[kind]++
	}
	return except(err, absent)
}

// except takes one of etcd's errors for none.
func except(err, harmless error) error {
	if is(err, harmless) {
		return nil
	}
	return err
}

// is reports whether an error, of the client or of the wire, is one of etcd's.
func is(err, target error) bool {
	return err != nil && (errors.Is(err, target) || rpctypes.Error(err) == rpctypes.Error(target))
}
