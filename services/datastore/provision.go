package datastore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// lookAgain is when a tenant that nothing happened to is looked at all the same. It must stay below the age at which the
// stream drops timers.
const lookAgain = 14 * 24 * time.Hour

// accountVersion is part of the inputs, so that what is new in accounts comes to tenants provisioned before it was: since
// 2, their owners are on record.
const accountVersion = "2"

// takenReasons are the reasons of failures by field of the spec.
var takenReasons = map[string]string{driver.FieldSchema: "SchemaTaken", driver.FieldUser: "UserTaken"}

// provision wakes on intake.accepted, the timer, changes of the tenant's two Secrets and of its DataStore. It makes user,
// schema, grants and both Secrets so, and tells datastore.provisioned.
func (s *datastore) provision(ctx context.Context, t *events.Turn) error {
	own := state.Datastore{}
	if err := t.OwnData(&own); err != nil {
		return err
	}
	n := t.Tenant.Spec.DataStore
	if n == "" {
		return t.Wait(ctx, "a DataStore to be chosen (spec.dataStore)")
	}
	if own.DataStore != "" && own.DataStore != n {
		return &events.Permanent{
			Reason:  "MigrationNotSupported",
			Message: fmt.Sprintf("spec.dataStore: the tenant's data is in DataStore %s; moving it to %s is not supported", own.DataStore, n),
		}
	}
	st := s.stores.get(n)
	st.joins(t.Key) // before looking, so that no change after it is missed
	object, opened, err := st.load(ctx)
	if err != nil {
		return err
	}
	var no *unsupported
	switch {
	case errors.Is(opened, errNoDataStore):
		st.waits(t.Key)
		return t.Wait(ctx, "DataStore "+n+" to exist")
	case errors.As(opened, &no):
		return &events.Permanent{Reason: reasonUnsupported, Message: no.Error()}
	case opened != nil:
		st.waits(t.Key)
		return &events.Unavailable{Dependency: st.dependency(), Err: opened}
	}
	account := accountOf(t.UID, &t.Tenant.Spec, own)
	p := plan{want: state.Datastore{
		DataStore: n, Driver: string(object.Spec.Driver), Endpoints: object.Spec.Endpoints, Schema: account.Schema, User: account.User,
		Config: own.Config, Certificate: own.Certificate,
	}, inputs: events.ID(n, string(object.UID), string(object.Spec.Driver), account.Schema, account.User, st.tenantsPart(), accountVersion)}
	p.decide(t, own)
	if p.nothing {
		return nil
	}
	if !p.settled {
		if err := s.apply(ctx, t, st, account, &p.want); err != nil {
			return err
		}
	}
	o := events.Outcome{Step: event.Provisioned, Inputs: p.inputs, Data: p.want}
	if p.news(t, own) {
		o.Facts = []events.Tell{{What: event.Provisioned, Data: event.DatastoreProvisioned{
			About: t.About(), DataStore: n, Driver: p.want.Driver, Schema: account.Schema, User: account.User,
		}}}
	}
	return t.Done(ctx, o)
}

// plan is what a turn comes to.
type plan struct {
	want   state.Datastore
	inputs string
	// settled: what was made before is what must be, and nobody touched it. nothing: the state says so, too.
	settled, nothing bool
	known            bool // the state is of a provisioning from the same inputs
}

// decide compares what must be with the state and with what woke the turn.
func (p *plan) decide(t *events.Turn, own state.Datastore) {
	s := t.Own()
	p.known = s != nil && s.Step == event.Provisioned && s.Inputs == p.inputs
	p.settled = p.known && s.Failure == nil && !touched(t.Reasons, own) && !due(t.Events)
	p.nothing = p.settled && s.Generation == t.Generation && s.Waiting == ""
}

// news reports whether the others must hear of the outcome: each generation is told once, and so are what rolls out pods
// and the end of a failure that was told.
func (p *plan) news(t *events.Turn, own state.Datastore) bool {
	return !p.known || t.Own().Generation != t.Generation || t.Own().Failure != nil ||
		own.Config.Checksum != p.want.Config.Checksum || own.Certificate.Checksum != p.want.Certificate.Checksum
}

// touched reports whether a wake is about a Secret as we haven't left it.
func touched(reasons []string, own state.Datastore) bool {
	for _, reason := range reasons {
		kind, rest, _ := strings.Cut(reason, " ")
		if kind != reasonSecret {
			continue
		}
		component, version, _ := strings.Cut(rest, " ")
		known := own.Config.ResourceVersion
		if component == name.ComponentDatastoreCertificate {
			known = own.Certificate.ResourceVersion
		}
		if version == "" || version != known {
			return true
		}
	}
	return false
}

// due reports whether the timer is among the events.
func due(list []events.Event) bool {
	for _, e := range list {
		if e.Service == name.ServiceDatastore && e.What == event.Due {
			return true
		}
	}
	return false
}

// accountOf names the tenant's schema and user: those it has, else those of its spec, else its UID.
func accountOf(uid string, spec *v1alpha1.TenantControlPlaneSpec, own state.Datastore) driver.Account {
	first := func(names ...string) string {
		for _, n := range names {
			if n != "" {
				return n
			}
		}
		return ""
	}
	return driver.Account{
		Owner: uid, Remembered: own.DataStore != "",
		Schema: first(own.Schema, spec.DataStoreSchema, uid),
		User:   first(own.User, spec.DataStoreUsername, uid),
	}
}

// apply makes it so: first that schema and user are nobody else's, for who has the certificate is that user; then the
// certificate beside the password, and the user, who may need the password.
func (s *datastore) apply(ctx context.Context, t *events.Turn, st *store, account driver.Account, want *state.Datastore) error {
	var renewAt time.Time
	err := st.do(ctx, func(d driver.Driver) error {
		if err := d.Validate(account); err != nil {
			return err
		}
		if err := d.Claim(ctx, account); err != nil {
			return err
		}
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() (err error) {
			var access driver.Access
			secret := secretFor(t.Key, t.UID, name.DatastoreCertificate(t.Key.Name), name.ComponentDatastoreCertificate)
			want.Certificate, err = s.ensure(ctx, secret, want.Certificate, func(have map[string][]byte, _ bool) (_ map[string][]byte, err error) {
				access, err = d.Access(account, accessOf(have), s.now())
				return certificateData(access), err
			})
			want.Certificate.NotAfter, renewAt = access.NotAfter, access.RenewAt
			return err
		})
		g.Go(func() (err error) {
			account := account
			secret := secretFor(t.Key, t.UID, name.DatastoreConfig(t.Key.Name), name.ComponentDatastoreConfig)
			want.Config, err = s.ensure(ctx, secret, want.Config, func(have map[string][]byte, trusted bool) (map[string][]byte, error) {
				data := configData(have, trusted, account, d.Endpoint(), password)
				account.Password = string(data[name.KeyDBPassword])
				return data, nil
			})
			if err == nil {
				_, err = d.Provision(ctx, account)
			}
			return err
		})
		return g.Wait()
	})
	var bad *driver.NameError
	var taken *driver.TakenError
	var config *driver.ConfigError
	var away *events.Unavailable
	switch {
	case errors.As(err, &bad):
		return &events.Permanent{Reason: "InvalidName", Message: bad.Error()}
	case errors.As(err, &taken):
		return &events.Permanent{Reason: takenReasons[taken.Field], Message: taken.Error()}
	case errors.As(err, &config):
		st.waits(t.Key)
		return &events.Unavailable{Dependency: st.dependency(), Err: config}
	case errors.As(err, &away):
		st.waits(t.Key)
		return err
	case err != nil:
		return fmt.Errorf("DataStore %s: %w", st.name, err)
	}
	// Set before the state is written: a crash between would leave the tenant without a timer.
	now := s.now()
	next := now.Add(lookAgain)
	if renewAt.After(now) && renewAt.Before(next) {
		next = renewAt
	}
	return t.At(ctx, next)
}
