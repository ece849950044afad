package account

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

// account names the tenant's schema and user. held is, without a state of them, as after the loss of NATS, what the tenant's Secret says
// they are, nil without one: whoever may write Secrets in the namespace could name another tenant's, so it takes the database's word for it.
func (p *Provisioner) account(ctx context.Context, t *loop.Turn, own state.Datastore) (a driver.Account, held *driver.Account, err error) {
	a = Of(t.Key, t.UID, t.Tenant, own)
	if own.DataStore == "" {
		secret, err := p.ConfigSecret(ctx, t)
		if err != nil {
			return a, nil, err
		}
		if secret != nil {
			held = &driver.Account{Owner: t.UID, Schema: string(secret.Data[name.KeyDBSchema]), User: string(secret.Data[name.KeyDBUser])}
		}
	}
	return a, held, nil
}

// Of names the tenant's schema and user: those it has, by the state or its object's status, else those made of its spec. Of
// the user that a spec asks for, one is made that is this tenant's alone: schemas are on record in one database, but a
// certificate opens every database of its authority to the user it names.
func Of(key events.Key, uid string, tenant *state.Tenant, own state.Datastore) driver.Account {
	asked := cmp.Or(tenant.Spec.DataStoreUsername, name.DataStoreUser(key.Namespace, key.Name, uid))
	a := driver.Account{
		Owner: uid, Remembered: own.DataStore != "",
		Schema: cmp.Or(own.Schema, tenant.Spec.DataStoreSchema, name.DataStoreSchema(key.Namespace, key.Name, uid)),
		User:   cmp.Or(own.User, tenant.Setup.User, name.DataStoreUserLike(asked, key.Namespace, key.Name, uid)),
	}
	a.Adopts = tenant.Setup.Schema == a.Schema && tenant.Setup.User == a.User
	return a
}

// Surveyed is the fingerprint of the account as the database has it, empty when the driver can't tell.
func Surveyed(ctx context.Context, d driver.Driver, account driver.Account) (string, error) {
	surveyor, ok := d.(driver.Surveyor)
	if !ok {
		return "", nil
	}
	seen, err := surveyor.Survey(ctx, account.Schema)
	return seen[account.Schema], err
}

// ConfigSecret is the tenant's Secret with its schema and user, nil when it has none: one of an earlier object of its name isn't its own.
func (p *Provisioner) ConfigSecret(ctx context.Context, t *loop.Turn) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := p.kube.Get(ctx, kube.Secrets, t.Key.Namespace, name.DatastoreConfig(t.Key.Name), secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !metav1.IsControlledBy(secret, &metav1.ObjectMeta{UID: types.UID(t.UID)}):
		return nil, nil
	}
	return secret, nil
}
