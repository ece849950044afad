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
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// stays reports of a resource whether its objects stay where they are until they are moved. Events go where the spec says at once, and what
// kube-apiserver doesn't keep elsewhere is nowhere else.
func stays(resource string) bool {
	return resource != v1alpha1.ResourceEvents && len(prefixesOf(resource)) > 0
}

// layoutOf says which resources of a tenant are in which DataStore besides its own: by the state, where that is lost by its object, and where
// that doesn't say, as of a tenant that has no data yet, by the spec. What doesn't stay is always as the spec says.
func layoutOf(t *state.Tenant, own state.Datastore) map[string]string {
	layout, home := map[string]string{}, homeOf(t, own)
	put := func(all []v1alpha1.DataStoreOverride, staying bool) {
		for _, o := range all {
			if stays(o.Resource) == staying && o.DataStore != home {
				layout[o.Resource] = o.DataStore
			}
		}
	}
	put(t.Spec.DataStoreOverrides, false)
	switch {
	case own.DataStore != "":
		for _, o := range own.Overrides {
			for _, resource := range o.Resources {
				put([]v1alpha1.DataStoreOverride{{Resource: resource, DataStore: o.DataStore}}, true)
			}
		}
	case t.Setup.DataStore != "" && t.Overridden != nil:
		put(t.Overridden, true)
	default:
		put(t.Spec.DataStoreOverrides, true)
	}
	return layout
}

// change is what of a tenant's data is to be in another DataStore than it is: all that no override names, or some resources.
type change struct {
	from, to  string
	resources []string
}

// changeOf is the next one that the spec asks for; none if to is empty.
func changeOf(t *state.Tenant, own state.Datastore) (next change) {
	switch {
	case own.DataStore == "" || t.Spec.DataStore == "":
		return next
	case own.DataStore != t.Spec.DataStore:
		return change{from: own.DataStore, to: t.Spec.DataStore}
	}
	layout, wanted := layoutOf(t, own), map[string]string{}
	for _, o := range t.Spec.DataStoreOverrides {
		wanted[o.Resource] = o.DataStore
	}
	all := map[string]bool{}
	for _, resource := range slices.Concat(slices.Collect(maps.Keys(layout)), slices.Collect(maps.Keys(wanted))) {
		all[resource] = stays(resource)
	}
	for _, resource := range slices.Sorted(maps.Keys(all)) {
		from, to := cmp.Or(layout[resource], own.DataStore), cmp.Or(wanted[resource], own.DataStore)
		switch {
		case !all[resource] || from == to:
		case next.to == "":
			next = change{from, to, []string{resource}}
		case next.from == from && next.to == to:
			next.resources = append(next.resources, resource)
		}
	}
	return next
}

// overridesOf returns the DataStores beside the tenant's own that hold something of the tenant or will, sorted by name. Each is
// listed if the state, the object's annotation or the spec names it, and keeps what the state knows of it. Resources are those that
// are there (layoutOf); a DataStore that has none is one to withdraw from, unless a move needs it (neededByMove).
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
	for resource, dataStore := range layoutOf(t, own) {
		x := at(dataStore)
		x.Resources = append(x.Resources, resource)
	}
	delete(all, homeOf(t, own)) // where everything is anyway
	var list []state.Override
	for _, n := range slices.Sorted(maps.Keys(all)) {
		slices.Sort(all[n].Resources)
		list = append(list, *all[n])
	}
	return list
}

// openOverrides finds the DataStores of overrides and brings what is known of them up to date, or says what the tenant has to
// wait for.
func (s *accounts) openOverrides(ctx context.Context, t *loop.Turn, h *home) (wait state.Wait, err error) {
	parts := []string{}
	for i := range h.overrides {
		o := &h.overrides[i]
		if len(o.Resources) == 0 {
			continue
		}
		other, object, wait, err := s.open(ctx, t, o.DataStore)
		if err != nil || wait.Waits() {
			return wait, err
		}
		for _, x := range []*v1alpha1.DataStore{h.object, object} {
			if s.stores.Kine(x.Spec.Driver) {
				return wait, &intent.Permanent{Reason: reason.OverrideDriver, Message: fmt.Sprintf(
					"spec.dataStoreOverrides: DataStore %s has the driver %s: only etcds can share the resources of a tenant", x.Name, x.Spec.Driver)}
			}
		}
		if !sameAccess(h.main, other) {
			return wait, &intent.Permanent{Reason: reason.OverrideAuthority, Message: fmt.Sprintf(
				"spec.dataStoreOverrides: DataStore %s has another certificateAuthority than DataStore %s, and kube-apiserver has one certificate "+
					"and one authority for all etcds: give both DataStores the same, or override with another DataStore", o.DataStore, h.main.Name)}
		}
		o.Endpoints = object.Spec.Endpoints
		h.others = append(h.others, other)
		parts = append(parts, o.DataStore, string(object.UID), other.Fingerprint(), events.ID(o.Resources...))
	}
	if len(h.others) > 0 {
		h.othersHash = events.ID(parts...)
	}
	return wait, nil
}

// sameAccess reports whether tenants reach both databases by the same certificate.
func sameAccess(st, other *store.Store) bool {
	a, b := st.Driver(), other.Driver()
	joint, ok := a.(driver.Joint)
	return ok && b != nil && joint.Joins(b)
}

// againstMove says what of a tenant's dataStoreOverrides is against a move of its other data to a DataStore, empty for nothing. What is in the
// DataStores of overrides stays there. An error is a database's, or of the management API.
func (s *keeper) againstMove(ctx context.Context, t *state.Tenant, own state.Datastore, account driver.Account, to *store.Store) (against string, err error) {
	for _, o := range t.Spec.DataStoreOverrides {
		if o.DataStore == own.DataStore {
			return fmt.Sprintf("dataStoreOverrides keep %s in DataStore %s, which the data are to leave", o.Resource, o.DataStore), nil
		}
	}
	for _, o := range overridesOf(t, own) {
		if o.DataStore == to.Name && (len(o.Resources) > 0 || o.Account != "") {
			return fmt.Sprintf("DataStore %s holds resources of the tenant already, by dataStoreOverrides of now or before", to.Name), nil
		}
		if len(o.Resources) == 0 {
			continue
		}
		other := s.stores.Get(o.DataStore)
		if _, opened, err := other.Load(ctx); err != nil || opened != nil {
			return "", errors.Join(err, opened)
		}
		if !sameAccess(to, other) {
			return fmt.Sprintf("DataStore %s is no etcd of the same certificateAuthority as DataStore %s of dataStoreOverrides: kube-apiserver has one "+
				"certificate and one authority for all", to.Name, o.DataStore), nil
		}
		place, err := other.Place(ctx, account)
		if err != nil {
			return "", err
		}
		for _, end := range []*store.Store{s.stores.Get(own.DataStore), to} {
			there, err := end.Place(ctx, account)
			if err != nil {
				return "", err
			}
			if there != "" && there == place {
				return fmt.Sprintf("DataStore %s and DataStore %s of dataStoreOverrides are one database", end.Name, o.DataStore), nil
			}
		}
	}
	return "", nil
}

// againstPart says what is against a move of some of a tenant's resources to a DataStore; empty for nothing. used are those that it has data in,
// its own first. An error is a database's.
func (s *keeper) againstPart(ctx context.Context, to *store.Store, account driver.Account, used ...*store.Store) (against string, err error) {
	if !sameAccess(used[0], to) {
		return fmt.Sprintf("DataStore %s is no etcd of the same certificateAuthority as DataStore %s: kube-apiserver has one certificate and one authority "+
			"for all", to.Name, used[0].Name), nil
	}
	there, err := to.Place(ctx, account)
	if err != nil || there == "" {
		return "", err
	}
	for _, other := range used {
		if other == to {
			continue
		}
		here, err := other.Place(ctx, account)
		if err != nil {
			return "", err
		}
		if here == there {
			return fmt.Sprintf("DataStores %s and %s are one database: name the one that the tenant uses already", to.Name, other.Name), nil
		}
	}
	return "", nil
}

// stillUsed reports whether an account in a DataStore is one that the tenant's data are in, by this name of its database or another.
func (s *accounts) stillUsed(ctx context.Context, own state.Datastore, account driver.Account, dataStore string) (bool, error) {
	used := append(namesOf(own.Overrides), own.DataStore)
	if slices.Contains(used, dataStore) {
		return true, nil
	}
	st := s.stores.Get(dataStore)
	if _, opened, err := st.Load(ctx); err != nil || opened != nil {
		return false, err // one that isn't there, or can't be opened, is left as it is
	}
	there, err := st.Place(ctx, account)
	if err != nil || there == "" {
		return false, err
	}
	for _, n := range used {
		here, err := s.stores.Get(n).Place(ctx, account)
		if err != nil || here == there {
			return err == nil, err
		}
	}
	return false, nil
}

// sealedAs is a tenant's account in a DataStore that some of its resources have moved from: what of them is there may not be written until
// all pods know where they are.
func sealedAs(account driver.Account, own state.Datastore, dataStore string) driver.Account {
	if m := own.Move; m != nil && m.Phase == state.MoveDone && len(m.Resources) > 0 && m.From == dataStore {
		account.ReadOnly, account.ReadOnlyOf = true, strings.Join(prefixesOf(m.Resources...), ",")
	}
	return account
}

// applyOverrides provisions the tenant's account in the DataStores of overrides. It comes before anything is made for the tenant in
// its own DataStore: the certificate it gets there is good in all of them, whoever has the user there.
func (s *accounts) applyOverrides(ctx context.Context, t *loop.Turn, p *plan, h home) error {
	account := p.account
	account.Remembered = false // nothing was made for overrides before owners were on record
	g, gctx := errgroup.WithContext(ctx)
	for _, other := range h.others {
		i := slices.IndexFunc(p.want.Overrides, func(o state.Override) bool { return o.DataStore == other.Name })
		g.Go(func() error {
			err := other.Do(gctx, func(d driver.Driver) error {
				defer s.handlers.Since(metric.HandlerDatastoreSetup, time.Now())
				account := sealedAs(account, p.want, other.Name)
				if _, err := d.Provision(gctx, account); err != nil {
					return err
				}
				seen, err := surveyed(gctx, d, account)
				p.want.Overrides[i].Account = seen
				return err
			})
			return intentOf(t, other, err)
		})
	}
	return g.Wait()
}

// withdraw removes the tenant's account from the DataStores that no override names any more, unless pods may use them, and takes
// them out of the plan. It returns the fact that says so. A DataStore that is away wakes the tenant when it is back; the tenant
// doesn't wait for it.
func (s *accounts) withdraw(ctx context.Context, t *loop.Turn, p *plan, h home) ([]loop.Tell, error) {
	named := func(o state.Override) bool {
		return len(o.Resources) > 0 || neededByMove(t.Tenant, p.want, o.DataStore)
	}
	if !slices.ContainsFunc(p.want.Overrides, func(o state.Override) bool { return !named(o) }) {
		return nil, nil
	}
	workload := state.Workload{}
	pods, err := t.Read(ctx, name.ServiceWorkload, &workload)
	if err != nil {
		return nil, err
	}
	var remain []state.Override
	fact := event.DatastoreWithdrawn{About: t.About(), Removed: map[string]int{}}
	for _, o := range p.want.Overrides {
		if named(o) || uses(pods, workload, t.Generation, o.DataStore) {
			remain = append(remain, o)
			continue
		}
		removed, left, err := s.withdrawFrom(ctx, t, p.account, h, o)
		var away *intent.Unavailable
		if errors.As(err, &away) {
			remain = append(remain, o)
			continue
		}
		if err != nil {
			return nil, err
		}
		s.stores.Get(o.DataStore).RemoveTenant(t.Key)
		fact.DataStores = append(fact.DataStores, o.DataStore)
		for kind, n := range removed {
			fact.Removed[kind] += n
		}
		if left != "" {
			fact.Left = append(fact.Left, left)
		}
	}
	p.want.Overrides = remain
	if len(fact.DataStores) == 0 {
		return nil, nil
	}
	return []loop.Tell{{What: event.Withdrawn, Data: fact}}, nil
}

// neededByMove reports whether data move to a DataStore, or are kept there since they moved from it.
func neededByMove(t *state.Tenant, own state.Datastore, dataStore string) bool {
	asked := func(o v1alpha1.DataStoreOverride) bool { return o.DataStore == dataStore }
	return t.Spec.DataStore == dataStore || slices.ContainsFunc(t.Spec.DataStoreOverrides, asked) ||
		own.Move != nil && own.Move.DataStore == dataStore ||
		slices.ContainsFunc(own.Kept, func(k state.Kept) bool { return k.DataStore == dataStore })
}

// uses reports whether pods may use a DataStore. They are known not to once all that run were made for this generation or a
// later one, and without it.
func uses(pods *state.State, workload state.Workload, generation int64, dataStore string) bool {
	return pods == nil || pods.Generation < generation || pods.Step != event.Available && pods.Step != event.Slept ||
		slices.Contains(workload.Overrides, dataStore)
}

// withdrawFrom removes the account from one DataStore, unless that is but another name of a database that stays, and says what it
// had to leave.
func (s *accounts) withdrawFrom(
	ctx context.Context, t *loop.Turn, account driver.Account, h home, o state.Override,
) (removed driver.Removed, left string, err error) {
	st := s.stores.Get(o.DataStore)
	st.AddTenant(t.Key)
	account.Remembered = false
	var opened error
	_, opened, err = st.Load(ctx)
	switch {
	case err != nil:
		return nil, "", err
	case errors.Is(opened, store.ErrNoDataStore):
		if o.Account == "" {
			return nil, "", nil // there never was
		}
		return nil, leftBehind(overridePlace(o), account, opened), nil
	case errors.As(opened, new(*store.UnsupportedError)):
		return nil, "", nil // nothing was ever made there
	case opened != nil:
		st.AddWaiting(t.Key)
		return nil, "", &intent.Unavailable{Dependency: st.Dependency(), Err: opened}
	}
	var place string
	place, err = st.Place(ctx, account)
	if err != nil || place == "" {
		return nil, "", intentOf(t, st, err)
	}
	for _, stay := range append([]*store.Store{h.main}, h.others...) {
		there, err := stay.Place(ctx, account)
		if err != nil {
			return nil, "", intentOf(t, stay, err)
		}
		if there == place {
			return nil, "", nil
		}
	}
	err = st.Do(ctx, func(d driver.Driver) (err error) {
		removed, err = d.Drop(ctx, account)
		return err
	})
	return removed, "", intentOf(t, st, err)
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
