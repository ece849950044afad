package datastore

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// account names the tenant's schema and user. held says that without a state of them, as after the loss of NATS, the tenant has
// its Secret: then there may be something of it. The names in that are not asked for: whoever may write Secrets in the
// namespace could name another tenant's.
func (s *datastore) account(ctx context.Context, t *loop.Turn, own state.Datastore) (a driver.Account, held bool, err error) {
	if own.DataStore == "" {
		secret := &corev1.Secret{}
		err := s.kube.Get(ctx, kube.Secrets, t.Key.Namespace, name.DatastoreConfig(t.Key.Name), secret)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return a, false, err
		case metav1.IsControlledBy(secret, &metav1.ObjectMeta{UID: types.UID(t.UID)}): // not of one that was deleted
			held = true
		}
	}
	return accountOf(t.Key, t.UID, t.Tenant, own), held, nil
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
