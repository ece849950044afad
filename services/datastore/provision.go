package datastore

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// lookAgain is when a tenant that nothing happened to is looked at all the same. It must stay below the age at which the
// stream drops timers.
const lookAgain = 14 * 24 * time.Hour

// accountVersion is part of the inputs, so that what is new in accounts comes to tenants provisioned before it was: since
// 2, their owners are on record; since 3, it is on record what they were like.
const accountVersion = "3"

// takenReasons are the reasons of failures by field of the spec.
var takenReasons = map[string]string{driver.FieldSchema: reason.SchemaTaken, driver.FieldUser: reason.UserTaken}

// provision wakes on intake.accepted, the timer, changes of the tenant's two Secrets and of its DataStore. It makes user,
// schema, grants and both Secrets so, and tells datastore.provisioned.
func (s *datastore) provision(ctx context.Context, t *loop.Turn) error {
	own := state.Datastore{}
	if err := t.OwnData(&own); err != nil {
		return err
	}
	n := t.Tenant.Spec.DataStore
	if n == "" {
		return t.Wait(ctx, state.Wait{
			On: name.ServiceIntake, Reason: reason.DataStoreNotChosen, Text: cmp.Or(t.Tenant.Unplaced, "a DataStore to be chosen"),
		})
	}
	if own.DataStore != "" && own.DataStore != n {
		return &intent.Permanent{
			Reason:  reason.MigrationNotSupported,
			Message: fmt.Sprintf("spec.dataStore: the tenant's data is in DataStore %s; moving it to %s is not supported", own.DataStore, n),
		}
	}
	st, object, waiting, err := s.open(ctx, t, n)
	if err != nil {
		return err
	}
	overrides, stays, others := overridesOf(t.Tenant, own), []*store{st}, ""
	if !waiting.Waits() {
		var more []*store
		more, others, waiting, err = s.join(ctx, t, st, object, overrides)
		stays = append(stays, more...)
	}
	if err != nil {
		return err
	}
	if waiting.Waits() {
		return t.Wait(ctx, waiting)
	}
	account, _, err := s.account(ctx, t, own)
	if err != nil {
		return err
	}
	p := plan{want: state.Datastore{
		DataStore: n, Driver: string(object.Spec.Driver), Endpoints: object.Spec.Endpoints, Schema: account.Schema, User: account.User,
		Account: own.Account, Config: own.Config, Certificate: own.Certificate, Former: own.Former, Overrides: overrides,
		Bytes: own.Bytes, Keys: own.Keys, MeasuredAt: own.MeasuredAt,
	}, inputs: events.ID(n, string(object.UID), string(object.Spec.Driver), account.Schema, account.User, st.tenantsPart(), accountVersion+others)}
	if own.Former {
		workload := state.Workload{}
		pods, err := t.Read(ctx, name.ServiceWorkload, &workload)
		if err != nil {
			return err
		}
		account.RolledOut = rolledOut(pods, workload, own.Certificate.Checksum)
	}
	p.decide(t, own, account.RolledOut)
	if p.settled {
		for _, st := range stays {
			st.leftAs(t.Key, own)
		}
	}
	var withdrawn []loop.Tell
	if p.want.Overrides, withdrawn, err = s.withdraw(ctx, t, account, stays, overrides); err != nil {
		return err
	}
	weighed := t.Woken(wakeSize) && st.weigh(&p.want)
	if p.nothing && len(withdrawn) == 0 && !weighed {
		return nil
	}
	if !p.settled {
		if err := s.share(ctx, t, stays[1:], account, p.want.Overrides); err != nil {
			return err
		}
		if err := s.apply(ctx, t, st, account, &p.want); err != nil {
			return err
		}
	}
	o := loop.Outcome{Step: event.Provisioned, Inputs: p.inputs, Data: p.want, Facts: withdrawn}
	if p.news(t, own) {
		o.Facts = append(o.Facts, loop.Tell{What: event.Provisioned, Data: event.DatastoreProvisioned{
			About: t.About(), DataStore: n, Driver: p.want.Driver, Schema: account.Schema, User: account.User, Overrides: namesOf(p.want.Overrides),
		}})
	}
	if weighed {
		o.Facts = append(o.Facts, loop.Tell{What: event.Measured, Data: event.DatastoreMeasured{
			About: t.About(), DataStore: n, Bytes: p.want.Bytes, Keys: p.want.Keys, MeasuredAt: p.want.MeasuredAt,
		}})
	}
	if err := t.Done(ctx, o); err != nil {
		return err
	}
	for _, st := range stays {
		st.leftAs(t.Key, p.want)
	}
	return nil
}

// open finds a DataStore that the tenant uses, or says what the tenant has to wait for.
func (s *datastore) open(ctx context.Context, t *loop.Turn, n string) (st *store, object *v1alpha1.DataStore, wait state.Wait, err error) {
	st = s.stores.get(n)
	st.joins(t.Key) // before looking, so that no change after it is missed
	object, opened, err := st.load(ctx)
	if err != nil {
		return nil, nil, wait, err
	}
	var no *unsupported
	switch {
	case errors.Is(opened, errNoDataStore):
		st.waits(t.Key)
		return st, nil, state.Wait{On: "DataStore", Reason: reason.DataStoreMissing, Text: "DataStore " + n + " to exist"}, nil
	case errors.As(opened, &no):
		return nil, nil, wait, &intent.Permanent{Reason: reason.DriverNotSupported, Message: no.Error()}
	case opened != nil:
		st.waits(t.Key)
		return nil, nil, wait, &intent.Unavailable{Dependency: st.dependency(), Err: opened}
	}
	return st, object, wait, nil
}

// plan is what a turn comes to.
type plan struct {
	want   state.Datastore
	inputs string
	// settled: what was made before is what must be, and nobody touched it. nothing: the state says so, too.
	settled, nothing bool
	known            bool // the state is of a provisioning from the same inputs
}

// rolledOut reports whether all pods, if there are any, have the credentials of a checksum.
func rolledOut(pods *state.State, workload state.Workload, checksum string) bool {
	return pods != nil && (pods.Step == event.Available || pods.Step == event.Slept) && slices.Equal(workload.Credentials, []string{checksum})
}

// decide compares what must be with the state and with what woke the turn. retire says that there are former credentials
// that nobody needs any more.
func (p *plan) decide(t *loop.Turn, own state.Datastore, retire bool) {
	s := t.Own()
	p.known = s != nil && s.Step == event.Provisioned && s.Inputs == p.inputs
	p.settled = p.known && s.Failure == nil && !touched(t.Wakes, own) && !due(t.Events) && !retire
	p.nothing = p.settled && s.Generation == t.Generation && !s.Wait.Waits()
}

// news reports whether the others must hear of the outcome: each generation is told once, and so are what rolls out pods
// and the end of a failure that was told.
func (p *plan) news(t *loop.Turn, own state.Datastore) bool {
	return !p.known || t.Own().Generation != t.Generation || t.Own().Failure != nil ||
		own.Config.Checksum != p.want.Config.Checksum || own.Certificate.Checksum != p.want.Certificate.Checksum
}

// touched reports whether a wake is about a Secret, or an account, that isn't as the last turn left it.
func touched(wakes []loop.Wake, own state.Datastore) bool {
	for _, w := range wakes {
		switch w.Kind {
		case wakeAccount:
			if w.Version != accountIn(own, w.Object) {
				return true
			}
		case wakeSecret:
			known := own.Config.ResourceVersion
			if w.Object == name.ComponentDatastoreCertificate {
				known = own.Certificate.ResourceVersion
			}
			if w.Gone || w.Version != known {
				return true
			}
		}
	}
	return false
}

// due reports whether the timer is among the events.
func due(list []loop.Event) bool {
	for _, e := range list {
		if e.Service == name.ServiceDatastore && e.What == event.Due {
			return true
		}
	}
	return false
}

// account names the tenant's schema and user. Without a memory of them, as after the loss of NATS, they are those of
// its Secret, if it has one; held says that it has.
func (s *datastore) account(ctx context.Context, t *loop.Turn, own state.Datastore) (a driver.Account, held bool, err error) {
	var data map[string][]byte
	if own.DataStore == "" {
		secret := &corev1.Secret{}
		err := s.kube.Get(ctx, kube.Secrets, t.Key.Namespace, name.DatastoreConfig(t.Key.Name), secret)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return a, false, err
		case metav1.IsControlledBy(secret, &metav1.ObjectMeta{UID: types.UID(t.UID)}): // not of one that was deleted
			data = secret.Data
		}
	}
	return accountOf(t.Key, t.UID, &t.Tenant.Spec, own, data), data != nil, nil
}

// accountOf names the tenant's schema and user: those it has, by the state or its Secret, else those of its spec.
func accountOf(key events.Key, uid string, spec *v1alpha1.TenantControlPlaneSpec, own state.Datastore, held map[string][]byte) driver.Account {
	return driver.Account{
		Owner: uid, Remembered: own.DataStore != "",
		Schema: cmp.Or(own.Schema, string(held[name.KeyDBSchema]), spec.DataStoreSchema, name.DataStoreSchema(key.Namespace, key.Name, uid)),
		User:   cmp.Or(own.User, string(held[name.KeyDBUser]), spec.DataStoreUsername, name.DataStoreUser(key.Namespace, key.Name, uid)),
	}
}

// apply makes it so: first that schema and user are nobody else's, for who has the certificate is that user; then the
// password, of which other credentials may be made; then these beside the user.
func (s *datastore) apply(ctx context.Context, t *loop.Turn, st *store, account driver.Account, want *state.Datastore) error {
	var renewAt time.Time
	err := st.do(ctx, func(d driver.Driver) error {
		if err := d.Validate(account); err != nil {
			return err
		}
		if err := d.Claim(ctx, account); err != nil {
			return err
		}
		config := secretFor(t.Key, t.UID, name.DatastoreConfig(t.Key.Name), name.ComponentDatastoreConfig)
		var err error
		want.Config, err = s.ensure(ctx, config, want.Config, func(have map[string][]byte, trusted bool) (map[string][]byte, error) {
			data := configData(have, trusted, account, d, password)
			account.Password = string(data[name.KeyDBPassword])
			return data, nil
		})
		if err != nil {
			return err
		}
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() (err error) {
			var access driver.Access
			secret := secretFor(t.Key, t.UID, name.DatastoreCertificate(t.Key.Name), name.ComponentDatastoreCertificate)
			before := want.Certificate.Checksum
			want.Certificate, err = s.ensure(ctx, secret, want.Certificate, func(have map[string][]byte, _ bool) (_ map[string][]byte, err error) {
				access, err = d.Access(account, accessOf(have), s.now())
				return certificateData(access), err
			})
			want.Certificate.NotAfter, renewAt = access.NotAfter, access.RenewAt
			want.Certificate.Keys = slices.Sorted(maps.Keys(secret.Data)) // kine is told of each
			replaced := len(access.Credentials) > 0 && before != "" && before != want.Certificate.Checksum
			want.Former = want.Former && !account.RolledOut || replaced
			return err
		})
		g.Go(func() (err error) {
			if _, err = d.Provision(ctx, account); err == nil {
				want.Account, err = surveyed(ctx, d, account)
			}
			return err
		})
		return g.Wait()
	})
	if err != nil {
		return intentOf(t, st, err)
	}
	// Set before the state is written: a crash between would leave the tenant without a timer.
	now := s.now()
	next := now.Add(lookAgain)
	if renewAt.After(now) && renewAt.Before(next) {
		next = renewAt
	}
	return t.At(ctx, next)
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

// intentOf gives what a DataStore answered its intent, nil for no error. Who can only wait for it is noted to be woken.
func intentOf(t *loop.Turn, st *store, err error) error {
	var bad *driver.NameError
	var taken *driver.TakenError
	var config *driver.ConfigError
	var away *intent.Unavailable
	in := ""
	if st.name != t.Tenant.Spec.DataStore {
		in = "in DataStore " + st.name + ", by dataStoreOverrides: "
	}
	switch {
	case errors.As(err, &bad):
		return &intent.Permanent{Reason: reason.InvalidName, Message: in + bad.Error()}
	case errors.As(err, &taken):
		return &intent.Permanent{Reason: takenReasons[taken.Field], Message: in + taken.Error()}
	case errors.As(err, &config):
		st.waits(t.Key)
		return &intent.Unavailable{Dependency: st.dependency(), Err: config}
	case errors.As(err, &away):
		st.waits(t.Key)
		return err
	case err != nil:
		return fmt.Errorf("DataStore %s: %w", st.name, err)
	}
	return nil
}
