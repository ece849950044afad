package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// deletePage is how many keys are deleted by one request: a bigger one would hold up the other tenants.
const deletePage = 5000

// prefix is the exact range of an account's keys: from itself to the first key that doesn't start with it. It ends in a
// slash, so that "ab" never covers what is of "abc"; '0' is the byte after it.
func prefix(schema string) (from, to string) { return "/" + schema + "/", "/" + schema + "0" }

// Claim takes schema and user for the account's owner.
func (e *etcd) Claim(ctx context.Context, a driver.Account) error {
	if err := e.validate(a); err != nil {
		return err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	_, _, err := e.claim(ctx, a)
	return e.classify(parent, err)
}

// Provision takes the account for its owner, then makes role and user what they should be. It looks first: each change of
// etcd's users makes it evaluate the rights of every request under way again.
func (e *etcd) Provision(ctx context.Context, a driver.Account) ([]string, error) {
	if err := e.validate(a); err != nil {
		return nil, err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	have, claimed, err := e.claim(ctx, a)
	if err != nil {
		return nil, e.classify(parent, err)
	}
	// Role and user don't need each other until the user gets the role.
	ofRole, ofUser, ofBoth := step.New(ctx, e.held), step.New(ctx, e.held), step.New(ctx, e.held)
	var g errgroup.Group
	g.Go(func() error { e.role(ofRole, a, have); return ofRole.Err() })
	g.Go(func() error { e.user(ofUser, a, have.user); return ofUser.Err() })
	err = g.Wait()
	if err == nil && (have.user == nil || !slices.Contains(have.user.Roles, a.Schema)) {
		ofBoth.Do("role granted to the user", func(ctx context.Context) error {
			_, err := e.client.UserGrantRole(ctx, a.User, a.Schema)
			return err
		})
		err = ofBoth.Err()
	}
	return slices.Concat(claimed, ofRole.Changed(), ofUser.Changed(), ofBoth.Changed()), e.classify(parent, err)
}

// found is what there is of an account; what is not there is nil.
type found struct {
	role *clientv3.AuthRoleGetResponse
	user *clientv3.AuthUserGetResponse
	// owners of schema and user, by their keys.
	owners owner.Records
}

// permission of a role: on a key, or on the range from it to another, which isn't in it.
type permission struct {
	from, to string
	kind     authpb.Permission_Type
}

// seesCompaction is what each tenant's API server may read beside its own keys.
var seesCompaction = permission{from: compactRevKey, kind: authpb.READ}

func (f found) permissions() (all []permission) {
	if f.role == nil {
		return nil
	}
	for _, p := range f.role.Perm {
		all = append(all, permission{string(p.Key), string(p.RangeEnd), p.PermType})
	}
	return all
}

// read asks for role, user and owners side by side.
func (e *etcd) read(ctx context.Context, a driver.Account) (have found, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		have.role, err = e.client.RoleGet(ctx, a.Schema)
		if is(err, rpctypes.ErrRoleNotFound) {
			have.role, err = nil, nil
		}
		return err
	})
	g.Go(func() (err error) {
		have.user, err = e.client.UserGet(ctx, a.User)
		if is(err, rpctypes.ErrUserNotFound) {
			have.user, err = nil, nil
		}
		return err
	})
	g.Go(func() (err error) { have.owners, err = e.ownersOf(ctx, a); return err })
	err = g.Wait()
	return have, err
}

// role gives the role the permissions it should have, to the tenant's keys and to see up to where etcd is compacted, and then takes all
// others: an API server that runs is never without.
func (e *etcd) role(s *step.Steps, a driver.Account, have found) {
	wanted := append(permissionsOf(a), seesCompaction)
	if have.role == nil {
		s.Do("role made", func(ctx context.Context) error {
			_, err := e.client.RoleAdd(ctx, a.Schema)
			return except(err, rpctypes.ErrRoleAlreadyExist)
		})
	}
	has := have.permissions()
	for _, p := range wanted {
		if slices.Contains(has, p) {
			continue
		}
		s.Do(fmt.Sprintf("permission on %q given to the role", p.from), func(ctx context.Context) error {
			_, err := e.client.RoleGrantPermission(ctx, a.Schema, p.from, p.to, clientv3.PermissionType(p.kind))
			return err
		})
	}
	for _, p := range has {
		if slices.ContainsFunc(wanted, func(w permission) bool { return w.from == p.from && w.to == p.to }) {
			continue // it is right, or has just become so: etcd replaces what a role has on the same range
		}
		s.Do(fmt.Sprintf("permission on %q to %q taken from the role", p.from, p.to), func(ctx context.Context) error {
			_, err := e.client.RoleRevokePermission(ctx, a.Schema, p.from, p.to)
			return except(err, rpctypes.ErrPermissionNotGranted)
		})
	}
}

// permissionsOf are those on the account's own keys: what may be written, then what may be read beside it. Given in this order, none that
// stays is missing meanwhile. A write that is under way when its right goes is refused, too: etcd looks at rights when it applies.
func permissionsOf(a driver.Account) (all []permission) {
	from, to := prefix(a.Schema)
	switch {
	case !a.ReadOnly:
		return []permission{{from, to, authpb.READWRITE}}
	case a.ReadOnlyOf != "":
		at := from
		for _, begins := range slices.Sorted(strings.SplitSeq(a.ReadOnlyOf, ",")) {
			all = append(all, permission{at, from + begins, authpb.READWRITE})
			at = clientv3.GetPrefixRangeEnd(from + begins)
		}
		all = append(all, permission{at, to, authpb.READWRITE})
	}
	return append(all, permission{from, to, authpb.READ})
}

// user makes the user and takes from it what is not its own role.
func (e *etcd) user(s *step.Steps, a driver.Account, user *clientv3.AuthUserGetResponse) {
	if user == nil {
		s.Do("user made", func(ctx context.Context) error {
			_, err := e.client.UserAddWithOptions(ctx, a.User, "", &clientv3.UserAddOptions{NoPassword: true})
			return except(err, rpctypes.ErrUserAlreadyExist)
		})
		return
	}
	for _, r := range user.Roles {
		if r == a.Schema {
			continue
		}
		s.Do("role "+r+" taken from the user", func(ctx context.Context) error {
			_, err := e.client.UserRevokeRole(ctx, a.User, r)
			return except(err, rpctypes.ErrRoleNotGranted)
		})
	}
}

// Drop removes the user first, so that a process of the tenant that still runs somewhere can't write again what is being
// deleted, then the role, then the keys, and looks that none is left; each only if it is the owner's. Until all is gone
// the record keeps others away.
func (e *etcd) Drop(ctx context.Context, a driver.Account) (driver.Removed, error) {
	removed := driver.Removed{}
	if err := e.validate(a); err != nil {
		return removed, err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	have, err := e.claimLeft(ctx, a)
	if err != nil {
		return removed, e.classify(parent, err)
	}
	s := step.New(ctx, e.held)
	if have.owners.User.Is(a) {
		s.Do("delete the user", func(ctx context.Context) error {
			_, err := e.client.UserDelete(ctx, a.User)
			return count(removed, "User", err, rpctypes.ErrUserNotFound)
		})
	}
	if have.owners.Schema.Is(a) {
		s.Do("delete the role", func(ctx context.Context) error {
			_, err := e.client.RoleDelete(ctx, a.Schema)
			return count(removed, "Role", err, rpctypes.ErrRoleNotFound)
		})
		for left := true; left && s.Err() == nil; {
			s.Do("delete the keys", func(context.Context) (err error) {
				left, err = e.deleteKeys(parent, a, removed)
				return err
			})
		}
	}
	if have.owners.User.Is(a) || have.owners.Schema.Is(a) {
		s.Do("delete the owner", func(context.Context) error { return e.release(parent, a, removed) })
	}
	return removed, e.classify(parent, s.Err())
}

// deleteKeys deletes a page of keys and reports whether there are more. Unlike users and roles, keys can be deleted on
// condition, so that a Drop which was overtaken by another, and by a new owner, deletes nothing of theirs.
func (e *etcd) deleteKeys(ctx context.Context, a driver.Account, removed driver.Removed) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	from, to := prefix(a.Schema)
	owner, _ := ownerKeys(a)
	page, err := e.client.Get(ctx, from, clientv3.WithRange(to), clientv3.WithKeysOnly(), clientv3.WithLimit(deletePage))
	if err != nil || len(page.Kvs) == 0 {
		return false, err
	}
	end := to
	if page.More {
		end = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	done, err := e.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(owner), "=", a.Owner)).Then(
		clientv3.OpDelete(from, clientv3.WithRange(end)),
		clientv3.OpGet(from, clientv3.WithRange(to), clientv3.WithCountOnly()),
	).Commit()
	if err != nil {
		return true, err
	}
	if !done.Succeeded {
		return true, errRaced
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
	return err != nil && (errors.Is(err, target) || errors.Is(rpctypes.Error(err), rpctypes.Error(target)))
}
