package account

// dataStoreOverrides keep some of a tenant's resources in other DataStores. There it has the account it has in its own: the
// same schema and user, for kube-apiserver has one prefix and one certificate for all etcds. What no override names any more
// is removed once no pod uses it. The record of where there may be something is an annotation of the object, which intake
// writes before anything is made, and shortens when it hears that nothing is left (datastore.withdrawn).

import (
	"context"
	"errors"
	"fmt"
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

// openOverrides finds the DataStores of overrides and brings what is known of them up to date, or says what the tenant has to
// wait for.
func (p *Provisioner) openOverrides(ctx context.Context, t *loop.Turn, h *Home) (wait state.Wait, err error) {
	parts := []string{}
	for i := range h.overrides {
		o := &h.overrides[i]
		if len(o.Resources) == 0 {
			continue
		}
		other, object, wait, err := p.Open(ctx, t, o.DataStore)
		if err != nil || wait.Waits() {
			return wait, err
		}
		for _, x := range []*v1alpha1.DataStore{h.Object, object} {
			if p.stores.Kine(x.Spec.Driver) {
				return wait, &intent.Permanent{Reason: reason.OverrideDriver, Message: fmt.Sprintf(
					"spec.dataStoreOverrides: DataStore %s has the driver %s: only etcds can share the resources of a tenant", x.Name, x.Spec.Driver)}
			}
		}
		if !SameAccess(h.Main, other) {
			return wait, &intent.Permanent{Reason: reason.OverrideAuthority, Message: fmt.Sprintf(
				"spec.dataStoreOverrides: DataStore %s has another certificateAuthority than DataStore %s, and kube-apiserver has one certificate "+
					"and one authority for all etcds: give both DataStores the same, or override with another DataStore", o.DataStore, h.Main.Name)}
		}
		o.Endpoints = object.Spec.Endpoints
		h.Others = append(h.Others, other)
		parts = append(parts, o.DataStore, string(object.UID), other.Fingerprint(), events.ID(o.Resources...))
	}
	if len(h.Others) > 0 {
		h.othersHash = events.ID(parts...)
	}
	return wait, nil
}

// SameAccess reports whether tenants reach both databases by the same certificate.
func SameAccess(st, other *store.Store) bool {
	a, b := st.Driver(), other.Driver()
	joint, ok := a.(driver.Joint)
	return ok && b != nil && joint.Joins(b)
}

// StillUsed reports whether an account in a DataStore is one that the tenant's data are in, by this name of its database or another.
func (p *Provisioner) StillUsed(ctx context.Context, own state.Datastore, account driver.Account, dataStore string) (bool, error) {
	used := append(NamesOf(own.Overrides), own.DataStore)
	if slices.Contains(used, dataStore) {
		return true, nil
	}
	st := p.stores.Get(dataStore)
	if _, opened, err := st.Load(ctx); err != nil || opened != nil {
		return false, err // one that isn't there, or can't be opened, is left as it is
	}
	there, err := st.Place(ctx, account)
	if err != nil || there == "" {
		return false, err
	}
	for _, n := range used {
		here, err := p.stores.Get(n).Place(ctx, account)
		if err != nil || here == there {
			return err == nil, err
		}
	}
	return false, nil
}

// Sealed is a tenant's account in a DataStore that some of its resources have moved from: what of them is there may not be written until
// all pods know where they are.
func Sealed(account driver.Account, own state.Datastore, dataStore string) driver.Account {
	if m := own.Move; m != nil && m.Phase == state.MoveDone && len(m.Resources) > 0 && m.From == dataStore {
		account.ReadOnly, account.ReadOnlyOf = true, strings.Join(PrefixesOf(m.Resources...), ",")
	}
	return account
}

// ApplyOverrides provisions the tenant's account in the DataStores of overrides. It comes before anything is made for the tenant in
// its own DataStore: the certificate it gets there is good in all of them, whoever has the user there.
func (p *Provisioner) ApplyOverrides(ctx context.Context, t *loop.Turn, plan *Plan, h Home) error {
	account := plan.Account
	account.Remembered = false // nothing was made for overrides before owners were on record
	g, gctx := errgroup.WithContext(ctx)
	for _, other := range h.Others {
		i := slices.IndexFunc(plan.Want.Overrides, func(o state.Override) bool { return o.DataStore == other.Name })
		g.Go(func() error {
			err := other.Do(gctx, func(d driver.Driver) error {
				defer p.handlers.Since(metric.HandlerDatastoreSetup, time.Now())
				account := Sealed(account, plan.Want, other.Name)
				if _, err := d.Provision(gctx, account); err != nil {
					return err
				}
				seen, err := Surveyed(gctx, d, account)
				plan.Want.Overrides[i].Account = seen
				return err
			})
			return IntentOf(t, other, err)
		})
	}
	return g.Wait()
}

// Withdraw removes the tenant's account from the DataStores that no override names any more, unless pods may use them, and takes
// them out of the plan. It returns the fact that says so. A DataStore that is away wakes the tenant when it is back; the tenant
// doesn't wait for it.
func (p *Provisioner) Withdraw(ctx context.Context, t *loop.Turn, plan *Plan, h Home) ([]loop.Tell, error) {
	named := func(o state.Override) bool {
		return len(o.Resources) > 0 || neededByMove(t.Tenant, plan.Want, o.DataStore)
	}
	if !slices.ContainsFunc(plan.Want.Overrides, func(o state.Override) bool { return !named(o) }) {
		return nil, nil
	}
	workload := state.Workload{}
	pods, err := t.Read(ctx, name.ServiceWorkload, &workload)
	if err != nil {
		return nil, err
	}
	var remain []state.Override
	fact := event.DatastoreWithdrawn{About: t.About(), Removed: map[string]int{}}
	for _, o := range plan.Want.Overrides {
		if named(o) || uses(pods, workload, t.Generation, o.DataStore) {
			remain = append(remain, o)
			continue
		}
		removed, left, err := p.withdrawFrom(ctx, t, plan.Account, h, o)
		var away *intent.Unavailable
		if errors.As(err, &away) {
			remain = append(remain, o)
			continue
		}
		if err != nil {
			return nil, err
		}
		p.stores.Get(o.DataStore).RemoveTenant(t.Key)
		fact.DataStores = append(fact.DataStores, o.DataStore)
		for kind, n := range removed {
			fact.Removed[kind] += n
		}
		if left != "" {
			fact.Left = append(fact.Left, left)
		}
	}
	plan.Want.Overrides = remain
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
func (p *Provisioner) withdrawFrom(
	ctx context.Context, t *loop.Turn, account driver.Account, h Home, o state.Override,
) (removed driver.Removed, left string, err error) {
	st := p.stores.Get(o.DataStore)
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
		return nil, "", IntentOf(t, st, err)
	}
	for _, stay := range append([]*store.Store{h.Main}, h.Others...) {
		there, err := stay.Place(ctx, account)
		if err != nil {
			return nil, "", IntentOf(t, stay, err)
		}
		if there == place {
			return nil, "", nil
		}
	}
	err = st.Do(ctx, func(d driver.Driver) (err error) {
		removed, err = d.Drop(ctx, account)
		return err
	})
	return removed, "", IntentOf(t, st, err)
}
