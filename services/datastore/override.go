package datastore

// dataStoreOverrides keep some of a tenant's resources in other DataStores. There it has the account it has in its own: the
// same schema and user, for kube-apiserver has one prefix and one certificate for all etcds. What no override names any more
// is removed once no pod uses it. The record of where there may be something is an annotation of the object, which intake
// writes before anything is made, and shortens when it hears that nothing is left (datastore.withdrawn).

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// overridesOf are the other DataStores that hold something of a tenant, or are to, by name. What the state knows of them is
// kept. Those that no override names have no resources: they are to be left.
func overridesOf(t *state.Tenant, own state.Datastore) []state.Override {
	all := map[string]*state.Override{}
	at := func(n string) *state.Override {
		if all[n] == nil {
			all[n] = &state.Override{DataStore: n}
		}
		return all[n]
	}
	for _, o := range own.Overrides {
		o.Resources = nil
		all[o.DataStore] = &o
	}
	for _, n := range name.Overrides(t.Annotations) {
		at(n)
	}
	for _, o := range t.Spec.DataStoreOverrides {
		x := at(o.DataStore)
		x.Resources = append(x.Resources, o.Resource)
	}
	delete(all, cmp.Or(own.DataStore, t.Spec.DataStore)) // where everything is anyway
	var list []state.Override
	for _, n := range slices.Sorted(maps.Keys(all)) {
		slices.Sort(all[n].Resources)
		list = append(list, *all[n])
	}
	return list
}

// join finds the DataStores of overrides and brings what is known of them up to date. inputs is a hash of what of them shows
// in the tenant.
func (s *datastore) join(ctx context.Context, t *loop.Turn, st *store, main *v1alpha1.DataStore, overrides []state.Override) (others []*store, inputs string, wait state.Wait, err error) {
	parts := []string{}
	for i := range overrides {
		o := &overrides[i]
		if len(o.Resources) == 0 {
			continue
		}
		other, object, wait, err := s.open(ctx, t, o.DataStore)
		if err != nil || wait.Waits() {
			return nil, "", wait, err
		}
		for _, x := range []*v1alpha1.DataStore{main, object} {
			if x.Spec.Driver != v1alpha1.DriverEtcd {
				return nil, "", wait, &intent.Permanent{Reason: reason.OverrideDriver, Message: fmt.Sprintf(
					"spec.dataStoreOverrides: DataStore %s has the driver %s: only etcds can share the resources of a tenant", x.Name, x.Spec.Driver)}
			}
		}
		if !joined(st, other) {
			return nil, "", wait, &intent.Permanent{Reason: reason.OverrideAuthority, Message: fmt.Sprintf(
				"spec.dataStoreOverrides: DataStore %s has another certificateAuthority than DataStore %s, and kube-apiserver has one certificate "+
					"and one authority for all etcds: give both DataStores the same, or override with another DataStore", o.DataStore, st.name)}
		}
		o.Endpoints = object.Spec.Endpoints
		others = append(others, other)
		parts = append(parts, o.DataStore, string(object.UID), other.tenantsPart(), events.ID(o.Resources...))
	}
	if len(others) > 0 {
		inputs = events.ID(parts...)
	}
	return others, inputs, wait, nil
}

// joined reports whether tenants reach both databases by the same certificate.
func joined(st, other *store) bool {
	a, b := st.driver(), other.driver()
	joint, ok := a.(driver.Joint)
	return ok && b != nil && joint.Joins(b)
}

// share makes the tenant's account so in the DataStores of overrides. It comes before anything is made for the tenant in its
// own: the certificate it gets is good in all of them, whoever has the user there.
func (s *datastore) share(ctx context.Context, t *loop.Turn, others []*store, account driver.Account, overrides []state.Override) error {
	account.Remembered = false // nothing was made for overrides before owners were on record
	g, gctx := errgroup.WithContext(ctx)
	for _, other := range others {
		i := slices.IndexFunc(overrides, func(o state.Override) bool { return o.DataStore == other.name })
		g.Go(func() error {
			err := other.do(gctx, func(d driver.Driver) error {
				if _, err := d.Provision(gctx, account); err != nil {
					return err
				}
				seen, err := surveyed(gctx, d, account)
				overrides[i].Account = seen
				return err
			})
			return intentOf(t, other, err)
		})
	}
	return g.Wait()
}

// withdraw removes the tenant's account from the DataStores that no override names any more, unless pods may use them. It
// returns the overrides that remain, and what is to be told. A DataStore that is away wakes the tenant when it is back; the
// tenant doesn't wait for it.
func (s *datastore) withdraw(ctx context.Context, t *loop.Turn, account driver.Account, stays []*store, overrides []state.Override) (remain []state.Override, tell []loop.Tell, err error) {
	named := func(o state.Override) bool { return len(o.Resources) > 0 }
	if !slices.ContainsFunc(overrides, func(o state.Override) bool { return !named(o) }) {
		return overrides, nil, nil
	}
	workload := state.Workload{}
	pods, err := t.Read(ctx, name.ServiceWorkload, &workload)
	if err != nil {
		return nil, nil, err
	}
	told := event.DatastoreWithdrawn{About: t.About(), Removed: map[string]int{}}
	for _, o := range overrides {
		if named(o) || uses(pods, workload, t.Generation, o.DataStore) {
			remain = append(remain, o)
			continue
		}
		gone, why, err := s.leave(ctx, t, account, stays, o)
		var away *intent.Unavailable
		if errors.As(err, &away) {
			remain = append(remain, o)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		s.stores.get(o.DataStore).leaves(t.Key)
		told.DataStores = append(told.DataStores, o.DataStore)
		for kind, n := range gone {
			told.Removed[kind] += n
		}
		if why != "" {
			told.Left = append(told.Left, why)
		}
	}
	if len(told.DataStores) > 0 {
		tell = []loop.Tell{{What: event.Withdrawn, Data: told}}
	}
	return remain, tell, nil
}

// uses reports whether pods may use a DataStore. They are known not to once all that run were made for this generation or a
// later one, and without it.
func uses(pods *state.State, workload state.Workload, generation int64, dataStore string) bool {
	return pods == nil || pods.Generation < generation || pods.Step != event.Available && pods.Step != event.Slept ||
		slices.Contains(workload.Overrides, dataStore)
}

// leave removes the account from one DataStore, unless that is but another name of a database that stays.
func (s *datastore) leave(ctx context.Context, t *loop.Turn, account driver.Account, stays []*store, o state.Override) (removed driver.Removed, left string, err error) {
	st := s.stores.get(o.DataStore)
	st.joins(t.Key)
	account.Remembered = false
	var opened error
	_, opened, err = st.load(ctx)
	switch {
	case err != nil:
		return nil, "", err
	case errors.Is(opened, errNoDataStore):
		if o.Account == "" {
			return nil, "", nil // there never was
		}
		return nil, leftBehind(o.DataStore, string(v1alpha1.DriverEtcd), account, true, opened), nil
	case errors.As(opened, new(*unsupported)):
		return nil, "", nil // nothing was ever made there
	case opened != nil:
		st.waits(t.Key)
		return nil, "", &intent.Unavailable{Dependency: st.dependency(), Err: opened}
	}
	var place string
	place, err = st.place(ctx, account)
	if err != nil || place == "" {
		return nil, "", intentOf(t, st, err)
	}
	for _, stay := range stays {
		there, err := stay.place(ctx, account)
		if err != nil {
			return nil, "", intentOf(t, stay, err)
		}
		if there == place {
			return nil, "", nil
		}
	}
	err = st.do(ctx, func(d driver.Driver) (err error) {
		removed, err = d.Drop(ctx, account)
		return err
	})
	return removed, "", intentOf(t, st, err)
}

// place tells the database of a store from others, by the account; empty where the account isn't.
func (st *store) place(ctx context.Context, account driver.Account) (place string, err error) {
	err = st.do(ctx, func(d driver.Driver) (err error) {
		if joint, ok := d.(driver.Joint); ok {
			place, err = joint.Place(ctx, account)
		}
		return err
	})
	return place, err
}

// namesOf are the DataStores that hold resources by overrides.
func namesOf(overrides []state.Override) (names []string) {
	for _, o := range overrides {
		if len(o.Resources) > 0 {
			names = append(names, o.DataStore)
		}
	}
	return names
}

// accountIn is the fingerprint of the tenant's account in a DataStore, as it was left.
func accountIn(own state.Datastore, dataStore string) string {
	if dataStore == own.DataStore {
		return own.Account
	}
	for _, o := range own.Overrides {
		if o.DataStore == dataStore {
			return o.Account
		}
	}
	return ""
}
