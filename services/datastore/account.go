package datastore

import (
	"cmp"
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// account names the tenant's schema and user. held is, without a state of them, as after the loss of NATS, what the tenant's Secret says
// they are, nil without one: whoever may write Secrets in the namespace could name another tenant's, so it takes the database's word for it.
func (s *accounts) account(ctx context.Context, t *loop.Turn, own state.Datastore) (a driver.Account, held *driver.Account, err error) {
	a = accountOf(t.Key, t.UID, t.Tenant, own)
	if own.DataStore == "" {
		secret, err := s.config(ctx, t)
		if err != nil {
			return a, nil, err
		}
		if secret != nil {
			held = &driver.Account{Owner: t.UID, Schema: string(secret.Data[name.KeyDBSchema]), User: string(secret.Data[name.KeyDBUser])}
		}
	}
	return a, held, nil
}

// accountOf names the tenant's schema and user: those it has, by the state or its object's status, else those made of its spec. Of
// the user that a spec asks for, one is made that is this tenant's alone: schemas are on record in one database, but a
// certificate opens every database of its authority to the user it names.
func accountOf(key events.Key, uid string, tenant *state.Tenant, own state.Datastore) driver.Account {
	asked := cmp.Or(tenant.Spec.DataStoreUsername, name.DataStoreUser(key.Namespace, key.Name, uid))
	a := driver.Account{
		Owner: uid, Remembered: own.DataStore != "",
		Schema: cmp.Or(own.Schema, tenant.Spec.DataStoreSchema, name.DataStoreSchema(key.Namespace, key.Name, uid)),
		User:   cmp.Or(own.User, tenant.Setup.User, name.DataStoreUserLike(asked, key.Namespace, key.Name, uid)),
	}
	a.Adopts = tenant.Setup.Schema == a.Schema && tenant.Setup.User == a.User
	return a
}

// surveyed is the fingerprint of the account as the database has it, empty when the driver can't tell.
func surveyed(ctx context.Context, d driver.Driver, account driver.Account) (string, error) {
	surveyor, ok := d.(driver.Surveyor)
	if !ok {
		return "", nil
	}
	seen, err := surveyor.Survey(ctx, account.Schema)
	return seen[account.Schema], err
}
