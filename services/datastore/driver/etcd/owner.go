package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// ownerPrefix begins the keys that say which tenant has a schema or a user. Every tenant's range starts with a slash, so
// that these are in none and root alone reaches them.
const ownerPrefix = "stoker.dev/owner/"

// ownerKeys are the keys whose value is the owner of an account's schema and user.
func ownerKeys(a driver.Account) (schema, user string) {
	return ownerPrefix + "schema/" + a.Schema, ownerPrefix + "user/" + a.User
}

// owner is a record of whose something is, as it was read.
type owner struct {
	key, value string
	recorded   bool
}

// is reports whether it is this account's; isOther whether it is on record as another's.
func (o owner) is(a driver.Account) bool      { return o.recorded && o.value == a.Owner }
func (o owner) isOther(a driver.Account) bool { return o.recorded && o.value != a.Owner }

// owners are those of an account's schema and user.
type owners struct{ schema, user owner }

func (e *etcd) ownersOf(ctx context.Context, a driver.Account) (o owners, err error) {
	o.schema.key, o.user.key = ownerKeys(a)
	got, err := e.client.Txn(ctx).Then(clientv3.OpGet(o.schema.key), clientv3.OpGet(o.user.key)).Commit()
	if err != nil {
		return o, err
	}
	for i, to := range []*owner{&o.schema, &o.user} {
		for _, kv := range got.Responses[i].GetResponseRange().Kvs {
			to.value, to.recorded = string(kv.Value), true
		}
	}
	return o, nil
}

// errRaced means that a record was made since it was looked for.
var errRaced = errors.New("somebody else was recorded as the owner meanwhile")

// claim records the account's owner for both schema and user, or for neither, and returns what there is. Nothing may be
// made, and nothing of what there is given out, before.
func (e *etcd) claim(ctx context.Context, a driver.Account) (have found, changed []string, err error) {
	for {
		if have, err = e.read(ctx, a); err != nil {
			return have, nil, err
		}
		if err := e.refuse(ctx, a, have); err != nil {
			return have, nil, err
		}
		w := e.writer(ctx)
		w.take(e.client, a, slices.DeleteFunc([]owner{have.owners.schema, have.owners.user}, func(o owner) bool { return o.recorded }))
		if !errors.Is(w.err, errRaced) {
			return have, w.changed, w.err
		}
	}
}

// claimLeft is claim for an account that is to be dropped: it refuses nothing, and what has no owner it takes only when
// it is sure to be the account's, by the service's memory or by a name nobody else has.
func (e *etcd) claimLeft(ctx context.Context, a driver.Account) (have found, err error) {
	for {
		if have, err = e.read(ctx, a); err != nil {
			return have, err
		}
		var free []owner
		if o := &have.owners.user; !o.recorded && have.user != nil && ours(a, a.User) {
			free = append(free, *o)
		}
		if o := &have.owners.schema; !o.recorded && ours(a, a.Schema) {
			keys := have.role != nil
			if !keys {
				if keys, err = e.holdsKeys(ctx, a.Schema); err != nil {
					return have, err
				}
			}
			if keys {
				free = append(free, *o)
			}
		}
		w := e.writer(ctx)
		if w.take(e.client, a, free); w.err != nil && !errors.Is(w.err, errRaced) {
			return have, w.err
		}
		if len(free) == 0 {
			return have, nil
		}
	}
}

// ours reports whether something without an owner on record is the account's beyond doubt.
func ours(a driver.Account, name string) bool { return a.Remembered || name == a.Owner }

// refuse returns a *driver.TakenError for what is another's. Tenants of before there were records, and of Kamaji, have
// no owner and become the first one's who asks for their names; but names that etcd's operator uses otherwise, for an
// administrator or for the keys of another Kubernetes, look differently.
func (e *etcd) refuse(ctx context.Context, a driver.Account, have found) error {
	schema := func(message string) error {
		return &driver.TakenError{Field: driver.FieldSchema, Value: a.Schema, Message: message}
	}
	user := func(message string) error {
		return &driver.TakenError{Field: driver.FieldUser, Value: a.User, Message: message}
	}
	switch {
	case have.owners.schema.isOther(a):
		return schema(driver.TakenByTenant)
	case have.owners.user.isOther(a):
		return user(driver.TakenByTenant)
	}
	if !have.owners.schema.recorded && !ours(a, a.Schema) {
		from, to := prefix(a.Schema)
		if have.role != nil {
			for _, p := range have.role.Perm {
				if string(p.Key) != from || string(p.RangeEnd) != to {
					return schema(driver.TakenByOthers)
				}
			}
		}
		if have.role == nil || len(have.role.Perm) == 0 {
			keys, err := e.holdsKeys(ctx, a.Schema)
			if err != nil {
				return err
			}
			if keys {
				return schema(driver.TakenByOthers)
			}
		}
	}
	if !have.owners.user.recorded && !ours(a, a.User) && have.user != nil {
		for _, role := range have.user.Roles {
			if role != a.Schema {
				return user(driver.TakenByOthers)
			}
		}
	}
	return nil
}

func (e *etcd) holdsKeys(ctx context.Context, schema string) (bool, error) {
	from, to := prefix(schema)
	got, err := e.client.Get(ctx, from, clientv3.WithRange(to), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
	return err == nil && len(got.Kvs) > 0, err
}

// take records the account's owner under keys that have none, all or, with errRaced, none of them.
func (w *writer) take(c *clientv3.Client, a driver.Account, free []owner) {
	if len(free) == 0 {
		return
	}
	var none []clientv3.Cmp
	var put []clientv3.Op
	for _, o := range free {
		none = append(none, clientv3.Compare(clientv3.CreateRevision(o.key), "=", 0))
		put = append(put, clientv3.OpPut(o.key, a.Owner))
	}
	w.do("owner recorded", func() error {
		done, err := c.Txn(w.ctx).If(none...).Then(put...).Commit()
		if err == nil && !done.Succeeded {
			err = errRaced
		}
		return err
	})
}

// release deletes the records that name the account's owner.
func (e *etcd) release(ctx context.Context, a driver.Account, removed driver.Removed) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	mine := func(key string) clientv3.Op {
		return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", a.Owner)}, []clientv3.Op{clientv3.OpDelete(key)}, nil)
	}
	schema, user := ownerKeys(a)
	done, err := e.client.Txn(ctx).Then(mine(schema), mine(user)).Commit()
	if err != nil {
		return err
	}
	for _, r := range done.Responses {
		if r.GetResponseTxn().Succeeded {
			removed[driver.RemovedOwner]++
		}
	}
	return nil
}

// Describe says what an account is in etcd, for whoever has to remove it by hand.
func Describe(a driver.Account) string {
	from, to := prefix(a.Schema)
	schema, user := ownerKeys(a)
	return fmt.Sprintf("keys from %s to %s and role %s, if the value of key %s is %s; user %s, if that of %s is; and these two keys",
		from, to, a.Schema, schema, a.Owner, a.User, user)
}

// validate is Validate and looks that there is an owner, without whom nothing would be kept apart.
func (e *etcd) validate(a driver.Account) error {
	if a.Owner == "" {
		return errors.New("the account has no owner")
	}
	return e.Validate(a)
}
