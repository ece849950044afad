package account

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// Side is an account in one DataStore, with its credentials.
type Side struct {
	Store   *store.Store
	Account driver.Account
	Access  driver.Access
}

// Reach reads the credentials of the tenant's account from its Secrets. Errors are the management API's.
func (p *Provisioner) Reach(ctx context.Context, key events.Key, st *store.Store, account driver.Account) (Side, error) {
	config, certificate := &corev1.Secret{}, &corev1.Secret{}
	for secret, into := range map[string]*corev1.Secret{name.DatastoreConfig(key.Name): config, name.DatastoreCertificate(key.Name): certificate} {
		if err := p.kube.Get(ctx, kube.Secrets, key.Namespace, secret, into); err != nil {
			return Side{}, err
		}
	}
	here := Side{Store: st, Account: account, Access: AccessOf(certificate.Data)}
	here.Account.Password = string(config.Data[name.KeyDBPassword])
	return here, nil
}
