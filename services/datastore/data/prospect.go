package data

// What a move of a tenant's data would meet, for whoever asks before it is begun (stoker.datastore.move, `stoker migrate --plan`). Any replica
// answers, whoever's the tenant is: all is read, from the states and from both databases with the administrator's rights, and nothing is
// written or made. findings.go says what follows from it.

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// prospect is what is known of a move before it is begun.
type prospect struct {
	key        events.Key
	uid        string
	generation int64
	tenant     *state.Tenant
	own        state.Datastore
	// failure is what the tenant has failed with, nil for nothing.
	failure *state.Failure
	target  string
	// from and to are the DataStores as they were found, account and there the tenant's accounts in them.
	from, to       aspect
	account, there driver.Account
	// same says that both are one database; names is what is wrong with the names in the other one; taken says that they are another's.
	same         bool
	names, taken error
	// overrides is what of dataStoreOverrides is against it, empty for nothing.
	overrides string
}

// aspect is a DataStore as a move would find it.
type aspect struct {
	object *v1alpha1.DataStore
	// opened is why there is no driver, pinged why the database doesn't answer.
	opened, pinged error
	paused         bool
	// why and warning are what should be put right although it can be used.
	why, warning string
	// used and quota are bytes; quota is 0 where it isn't known. room says that the driver can tell in general.
	used, quota int64
	room        bool
	// revision is 0 where it isn't known. raiseMost is how many are made up for by writes; 0 where that takes none.
	revision, raiseMost, raisePerSecond int64
}

// usable reports whether the database was asked and answered.
func (a aspect) usable() bool { return a.object != nil && a.opened == nil && a.pinged == nil }

// answerMove says what a move would meet.
func (k *Keeper) answerMove(ctx context.Context, question []byte) (any, error) {
	var q event.MoveQuery
	err := json.Unmarshal(question, &q)
	key := events.Tenant(q.Namespace, q.Name)
	if err != nil || !key.Valid() || !key.IsTenant() || q.DataStore != "" && !events.DataStore(q.DataStore).Valid() {
		return nil, &events.Refusal{Code: "400", Message: `send {"namespace":"…","name":"…","dataStore":"…"}`}
	}
	p, err := k.stands(ctx, key)
	if err != nil {
		return nil, err
	}
	if p.target = q.DataStore; p.target != "" && p.own.DataStore != "" && p.target != p.own.DataStore {
		if err := k.lookAt(ctx, p); err != nil {
			return nil, err
		}
	}
	return p.reply(), nil
}

// stands reads where a tenant's data are.
func (k *Keeper) stands(ctx context.Context, key events.Key) (*prospect, error) {
	p := &prospect{key: key, tenant: &state.Tenant{}}
	spec, err := k.bus.State(ctx, key, name.ServiceIntake)
	if errors.Is(err, events.ErrNotFound) {
		return nil, &events.Refusal{Code: "404", Message: "there is no tenant " + key.String()}
	}
	if err == nil {
		p.uid, p.generation = spec.UID, spec.Generation
		err = json.Unmarshal(spec.Data, p.tenant)
	}
	if err != nil {
		return nil, err
	}
	own, err := k.bus.State(ctx, key, name.ServiceDatastore)
	switch {
	case errors.Is(err, events.ErrNotFound):
		return p, nil
	case err != nil:
		return nil, err
	case own.UID != p.uid || len(own.Data) == 0: // of an earlier tenant of that name
		return p, nil
	}
	if own.Failed() {
		p.failure = own.Failure
	}
	return p, json.Unmarshal(own.Data, &p.own)
}

// lookAt looks at both DataStores. An error is one of the management API; what is wrong with a DataStore is in the aspects.
func (k *Keeper) lookAt(ctx context.Context, p *prospect) (err error) {
	p.account = account.Of(p.key, p.uid, p.tenant, p.own)
	if p.from, err = k.aspectOf(ctx, p.own.DataStore, p.account); err != nil {
		return err
	}
	if p.to, err = k.aspectOf(ctx, p.target, p.account); err != nil {
		return err
	}
	if !p.to.usable() {
		return nil
	}
	from, to := k.stores.Get(p.own.DataStore), k.stores.Get(p.target)
	m := &migrating{
		keeper: k, t: &loop.Turn{Key: p.key, UID: p.uid, Generation: p.generation, Tenant: p.tenant}, own: p.own, account: p.account,
		home: account.Home{Main: from, Object: p.from.object},
	}
	m.own.Move = &state.Move{}
	p.there = m.there(to)
	if p.from.object != nil {
		if p.same, err = m.sameDatabase(ctx, to, p.to.object); err != nil { // it went away just now
			p.from.pinged = err
		}
	}
	if p.overrides, err = k.againstMove(ctx, p.tenant, p.own, p.account, to); err != nil {
		p.overrides = "whether its dataStoreOverrides are against it isn't known: " + err.Error()
	}
	p.to.pinged = to.Do(ctx, func(d driver.Driver) (err error) {
		if p.names = d.Validate(p.there); p.names == nil {
			p.taken, err = takenBy(ctx, d, p.there)
		}
		return err
	})
	return nil
}

// takenBy says who else has the names of an account, by what is on record; nil for nobody. The second error is the database's.
func takenBy(ctx context.Context, d driver.Driver, a driver.Account) (taken, err error) {
	lister, ok := d.(driver.Lister)
	if !ok {
		return nil, nil //nolint:nilnil // nobody, as far as is known
	}
	accounts, err := lister.Accounts(ctx)
	single, ok := d.(driver.Single)
	only := ok && single.Single()
	for _, other := range accounts {
		switch {
		case other.Owner == a.Owner:
		case only, other.Schema == a.Schema:
			return &driver.TakenError{Field: driver.FieldSchema, Value: a.Schema, Message: driver.TakenByTenant}, err
		case other.User == a.User:
			return &driver.TakenError{Field: driver.FieldUser, Value: a.User, Message: driver.TakenByTenant}, err
		}
	}
	return nil, err
}

// aspectOf looks at one DataStore, in which the tenant has an account or not.
func (k *Keeper) aspectOf(ctx context.Context, n string, account driver.Account) (a aspect, err error) {
	st := k.stores.Get(n)
	st.Invalidate()
	if a.object, a.opened, err = st.Load(ctx); err != nil {
		return a, err
	}
	if errors.Is(a.opened, store.ErrNoDataStore) {
		k.stores.Forget(st)
		a.object = nil
	}
	a.paused = st.Paused(k.now())
	if a.opened == nil {
		a.pinged = a.ask(ctx, st, account)
	}
	return a, nil
}

// ask asks a DataStore's database what it says of itself and of an account.
func (a *aspect) ask(ctx context.Context, st *store.Store, account driver.Account) error {
	if err := st.Ping(ctx); err != nil {
		return err
	}
	a.why, a.warning = st.Warning(ctx)
	return st.Do(ctx, func(d driver.Driver) (err error) {
		if roomer, ok := d.(driver.Roomer); ok {
			a.room = true
			if a.used, a.quota, err = roomer.Room(ctx); err != nil {
				return err
			}
		}
		if by, ok := d.(driver.ByWrites); ok {
			a.raiseMost, a.raisePerSecond = by.RaiseMost()
		}
		if revisioner, ok := d.(driver.Revisioner); ok {
			// What a database doesn't say of an account, as one that isn't there, is no outage.
			if a.revision, err = revisioner.Revision(ctx, account); errors.Is(err, driver.ErrAway) {
				return err
			}
		}
		return nil
	})
}
