package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// TakenReasons are the reasons of failures by field of the spec.
var TakenReasons = map[string]string{driver.FieldSchema: reason.SchemaTaken, driver.FieldUser: reason.UserTaken}

// Home is the DataStores that a tenant's data is in, or is to be: its own, and those of overrides.
type Home struct {
	Main   *store.Store
	Object *v1alpha1.DataStore
	// Others are those of overrides that name resources; othersHash is of what of them shows in the tenant, empty without any.
	Others     []*store.Store
	othersHash string
	overrides  []state.Override
}

// NoteAccount notes in all DataStores how the turn leaves the tenant's account.
func (h Home) NoteAccount(t *loop.Turn, as state.Datastore) {
	h.Main.NoteAccount(t.Key, as)
	for _, st := range h.Others {
		st.NoteAccount(t.Key, as)
	}
}

// OpenHome finds the tenant's DataStores, or says what it has to wait for.
func (p *Provisioner) OpenHome(ctx context.Context, t *loop.Turn, own state.Datastore) (h Home, wait state.Wait, err error) {
	n := t.Tenant.Spec.DataStore
	if n == "" {
		text := cmp.Or(t.Tenant.Unplaced, "a DataStore to be chosen")
		return h, state.Wait{On: name.ServiceIntake, Reason: reason.DataStoreNotChosen, Text: text}, nil
	}
	h.Main, h.Object, wait, err = p.Open(ctx, t, HomeOf(t.Tenant, own))
	if err != nil || wait.Waits() {
		return h, wait, err
	}
	h.overrides = OverridesOf(t.Tenant, own)
	wait, err = p.openOverrides(ctx, t, &h)
	return h, wait, err
}

// HomeOf names the DataStore that a tenant's data are in, or are to be: by the state, or where that is lost, by its object.
func HomeOf(t *state.Tenant, own state.Datastore) string {
	return cmp.Or(own.DataStore, t.Setup.DataStore, t.Spec.DataStore)
}

// Open finds a DataStore that the tenant uses, or says what the tenant has to wait for.
func (p *Provisioner) Open(ctx context.Context, t *loop.Turn, n string) (st *store.Store, object *v1alpha1.DataStore, wait state.Wait, err error) {
	st = p.stores.Get(n)
	st.AddTenant(t.Key) // before looking, so that no change after it is missed
	object, opened, err := st.Load(ctx)
	if err != nil {
		return nil, nil, wait, err
	}
	var no *store.UnsupportedError
	switch {
	case errors.Is(opened, store.ErrNoDataStore):
		st.AddWaiting(t.Key)
		return st, nil, state.Wait{On: "DataStore", Reason: reason.DataStoreMissing, Text: "DataStore " + n + " to exist"}, nil
	case errors.As(opened, &no):
		return nil, nil, wait, &intent.Permanent{Reason: reason.DriverNotSupported, Message: no.Error()}
	case opened != nil:
		st.AddWaiting(t.Key)
		return nil, nil, wait, &intent.Unavailable{Dependency: st.Dependency(), Err: opened}
	}
	return st, object, wait, nil
}

// Apply provisions the account in the tenant's own DataStore and makes both Secrets hold what it is reached with. The order
// matters: the account is claimed first, because whoever has the certificate is that user; then comes the password, of which
// NATS makes credentials; the certificate and the user itself are made side by side.
func (p *Provisioner) Apply(ctx context.Context, t *loop.Turn, st *store.Store, account driver.Account, want *state.Datastore) error {
	var renewAt time.Time
	err := st.Do(ctx, func(d driver.Driver) (err error) {
		if err := d.Validate(account); err != nil {
			return err
		}
		claiming := time.Now()
		if err := d.Claim(ctx, account); err != nil {
			return err
		}
		claimed := time.Since(claiming)
		if account.Password, err = p.applyConfig(ctx, t, d, account, want); err != nil {
			return err
		}
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() (err error) {
			renewAt, err = p.applyCertificate(ctx, t, d, account, want)
			return err
		})
		g.Go(func() (err error) {
			provisioning := time.Now()
			if _, err = d.Provision(ctx, account); err == nil {
				want.Account, err = Surveyed(ctx, d, account)
			}
			p.handlers.Took(metric.HandlerDatastoreSetup, claimed+time.Since(provisioning))
			return err
		})
		return g.Wait()
	})
	if err != nil {
		return IntentOf(t, st, err)
	}
	// Set before the state is written: a crash between would leave the tenant without a timer.
	now := p.now()
	next := now.Add(lookAgain)
	for _, at := range []time.Time{renewAt, NextKept(*want)} {
		if at.After(now) && at.Before(next) {
			next = at
		}
	}
	return t.At(ctx, next)
}

// applyConfig makes <tenant>-datastore-config what it must be and returns the password in it.
func (p *Provisioner) applyConfig(
	ctx context.Context, t *loop.Turn, d driver.Driver, account driver.Account, want *state.Datastore,
) (secretPassword string, err error) {
	defer p.handlers.Since(name.ComponentDatastoreConfig, time.Now())
	config := SecretFor(t.Key, t.UID, name.DatastoreConfig(t.Key.Name), name.ComponentDatastoreConfig)
	want.Config, err = p.Ensure(ctx, config, want.Config, func(have *corev1.Secret, trusted bool) (map[string][]byte, error) {
		data := ConfigData(have.Data, trusted, account, d, Password)
		secretPassword = string(data[name.KeyDBPassword])
		return data, nil
	})
	return secretPassword, err
}

// applyCertificate makes <tenant>-datastore-certificate what it must be and returns when it is to be renewed, zero for never.
func (p *Provisioner) applyCertificate(
	ctx context.Context, t *loop.Turn, d driver.Driver, account driver.Account, want *state.Datastore,
) (renewAt time.Time, err error) {
	defer p.handlers.Since(name.ComponentDatastoreCertificate, time.Now())
	var access driver.Access
	secret := SecretFor(t.Key, t.UID, name.DatastoreCertificate(t.Key.Name), name.ComponentDatastoreCertificate)
	before := want.Certificate.Checksum
	want.Certificate, err = p.Ensure(ctx, secret, want.Certificate, func(have *corev1.Secret, _ bool) (_ map[string][]byte, err error) {
		account.RenewBefore, account.Kept = p.renewBefore, paused(have)
		before := AccessOf(have.Data)
		if rotates(have) {
			before = driver.Access{}
		}
		access, err = d.Access(account, before, p.now())
		return CertificateData(access), err
	})
	want.Certificate.NotAfter = access.NotAfter
	want.Certificate.Keys = slices.Sorted(maps.Keys(secret.Data)) // kine has a flag for each
	replaced := len(access.Credentials) > 0 && before != "" && before != want.Certificate.Checksum
	want.Former = want.Former && !account.RolledOut || replaced
	return access.RenewAt, err
}

// IntentOf gives the error of a DataStore its intent, nil for no error. A tenant that can only wait for the DataStore is noted, to be
// woken when it is back.
func IntentOf(t *loop.Turn, st *store.Store, err error) error {
	var bad *driver.NameError
	var taken *driver.TakenError
	var config *driver.ConfigError
	var away *intent.Unavailable
	in := ""
	if st.Name != t.Tenant.Spec.DataStore {
		in = "in DataStore " + st.Name + ", by dataStoreOverrides: "
	}
	switch {
	case errors.As(err, &bad):
		return &intent.Permanent{Reason: reason.InvalidName, Message: in + bad.Error()}
	case errors.As(err, &taken):
		return &intent.Permanent{Reason: TakenReasons[taken.Field], Message: in + taken.Error()}
	case errors.As(err, &config):
		st.AddWaiting(t.Key)
		return &intent.Unavailable{Dependency: st.Dependency(), Err: config}
	case errors.As(err, &away):
		st.AddWaiting(t.Key)
		return err
	case err != nil:
		return fmt.Errorf("DataStore %s: %w", st.Name, err)
	}
	return nil
}
