package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/step"
)

// ownerPrefix begins the keys that say which tenant has a schema or a user. Every tenant's range starts with a slash, so
// that these are in none and root alone reaches them.
const ownerPrefix = "stoker.dev/owner/"

// kamajiRangeEnd ends the range of a role that an old Kamaji made, which goes beyond the tenant's: a backslash and a zero, where a zero byte
// was meant. It is put right when the account is provisioned.
const kamajiRangeEnd = `\0`

// ownerKeys are the keys whose value is the owner of an account's schema and user.
func ownerKeys(a driver.Account) (schema, user string) {
	return ownerPrefix + "schema/" + a.Schema, ownerPrefix + "user/" + a.User
}

func (e *etcd) ownersOf(ctx context.Context, a driver.Account) (o owner.Records, err error) {
	schema, user := ownerKeys(a)
	got, err := e.client.Txn(ctx).Then(clientv3.OpGet(schema), clientv3.OpGet(user)).Commit()
	if err != nil {
		return o, err
	}
	for i, to := range []*owner.Record{&o.Schema, &o.User} {
		for _, kv := range got.Responses[i].GetResponseRange().Kvs {
			to.Value, to.Recorded = string(kv.Value), true
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
		schema, user := ownerKeys(a)
		var free []string
		if !have.owners.Schema.Recorded {
			free = append(free, schema)
		}
		if !have.owners.User.Recorded {
			free = append(free, user)
		}
		s := step.New(ctx, e.held)
		if e.take(s, a, free); !errors.Is(s.Err(), errRaced) {
			return have, s.Changed(), s.Err()
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
		schema, user := ownerKeys(a)
		ofSchema, ofUser := owner.Certain(a, e.Names)
		var free []string
		if !have.owners.User.Recorded && have.user != nil && ofUser {
			free = append(free, user)
		}
		if !have.owners.Schema.Recorded && ofSchema {
			keys := have.role != nil
			if !keys {
				if keys, err = e.holdsKeys(ctx, a.Schema); err != nil {
					return have, err
				}
			}
			if keys {
				free = append(free, schema)
			}
		}
		s := step.New(ctx, e.held)
		if e.take(s, a, free); s.Err() != nil && !errors.Is(s.Err(), errRaced) {
			return have, s.Err()
		}
		if len(free) == 0 {
			return have, nil
		}
	}
}

// refuse returns a *driver.TakenError for what is another's. What tenants had before there were records, or in Kamaji, has
// no owner, and goes to the account that adopts it; but names that etcd's operator uses otherwise, for an
// administrator or for the keys of another Kubernetes, look differently, and go to nobody.
func (e *etcd) refuse(ctx context.Context, a driver.Account, have found) error {
	if err := have.owners.Refuse(a); err != nil {
		return err
	}
	ofSchema, ofUser := owner.Certain(a, e.Names)
	if !have.owners.Schema.Recorded && !ofSchema {
		from, to := prefix(a.Schema)
		allowed := have.permissions()
		for _, p := range allowed {
			kamajis := a.Adopts && p.to == kamajiRangeEnd
			if p != seesCompaction && (p.from != from || p.to != to && !kamajis) {
				return owner.TakenSchema(a, driver.TakenByOthers)
			}
		}
		if !slices.ContainsFunc(allowed, func(p permission) bool { return p != seesCompaction }) {
			keys, err := e.holdsKeys(ctx, a.Schema)
			if err != nil {
				return err
			}
			if keys {
				return owner.TakenSchema(a, driver.TakenByOthers)
			}
		}
		if have.role != nil && !a.Adopts {
			return owner.TakenSchema(a, driver.TakenUnrecorded)
		}
	}
	if !have.owners.User.Recorded && !ofUser && have.user != nil {
		for _, role := range have.user.Roles {
			if role != a.Schema {
				return owner.TakenUser(a, driver.TakenByOthers)
			}
		}
		if !a.Adopts {
			return owner.TakenUser(a, driver.TakenUnrecorded)
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
func (e *etcd) take(s *step.Steps, a driver.Account, free []string) {
	if len(free) == 0 {
		return
	}
	var none []clientv3.Cmp
	var put []clientv3.Op
	for _, key := range free {
		none = append(none, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		put = append(put, clientv3.OpPut(key, a.Owner))
	}
	s.Do("owner recorded", func(ctx context.Context) error {
		done, err := e.client.Txn(ctx).If(none...).Then(put...).Commit()
		if err == nil && !done.Succeeded {
			err = errRaced
		}
		return err
	})
}

// PassOn puts another owner on record, for both schema and user or for neither.
func (e *etcd) PassOn(ctx context.Context, a driver.Account, to string) error {
	if err := e.validate(a); err != nil {
		return err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
	defer cancel()
	schema, user := ownerKeys(a)
	for {
		have, err := e.ownersOf(ctx, a)
		if err != nil {
			return e.classify(parent, err)
		}
		needed, err := have.PassOn(a, to)
		if err != nil || !needed {
			return err
		}
		s := step.New(ctx, e.held)
		s.Do("owner recorded", func(ctx context.Context) error {
			done, err := e.client.Txn(ctx).If(
				clientv3.Compare(clientv3.Value(schema), "=", have.Schema.Value), clientv3.Compare(clientv3.Value(user), "=", have.User.Value),
			).Then(clientv3.OpPut(schema, to), clientv3.OpPut(user, to)).Commit()
			if err == nil && !done.Succeeded {
				err = errRaced
			}
			return err
		})
		if err := s.Err(); !errors.Is(err, errRaced) {
			return e.classify(parent, err)
		}
	}
}

// release deletes the records that name the account's owner.
func (e *etcd) release(ctx context.Context, a driver.Account, removed driver.Removed) error {
	ctx, cancel := context.WithTimeout(ctx, limit.Step)
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
	if err := owner.Without(a); err != nil {
		return err
	}
	return e.Validate(a)
}
