package data

// Which data the spec asks to move, and what prevents the move.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

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
	layout, wanted := account.LayoutOf(t, own), map[string]string{}
	for _, o := range t.Spec.DataStoreOverrides {
		wanted[o.Resource] = o.DataStore
	}
	all := map[string]bool{}
	for _, resource := range slices.Concat(slices.Collect(maps.Keys(layout)), slices.Collect(maps.Keys(wanted))) {
		all[resource] = account.Stays(resource)
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

// againstMove says what of a tenant's dataStoreOverrides is against a move of its other data to a DataStore, empty for nothing. What is in the
// DataStores of overrides stays there. An error is a database's, or of the management API.
func (k *Keeper) againstMove(ctx context.Context, t *state.Tenant, own state.Datastore, a driver.Account, to *store.Store) (against string, err error) {
	for _, o := range t.Spec.DataStoreOverrides {
		if o.DataStore == own.DataStore {
			return fmt.Sprintf("dataStoreOverrides keep %s in DataStore %s, which the data are to leave", o.Resource, o.DataStore), nil
		}
	}
	for _, o := range account.OverridesOf(t, own) {
		if o.DataStore == to.Name && (len(o.Resources) > 0 || o.Account != "") {
			return fmt.Sprintf("DataStore %s holds resources of the tenant already, by dataStoreOverrides of now or before", to.Name), nil
		}
		if len(o.Resources) == 0 {
			continue
		}
		other := k.stores.Get(o.DataStore)
		if _, opened, err := other.Load(ctx); err != nil || opened != nil {
			return "", errors.Join(err, opened)
		}
		if !account.SameAccess(to, other) {
			return fmt.Sprintf("DataStore %s is no etcd of the same certificateAuthority as DataStore %s of dataStoreOverrides: kube-apiserver has one "+
				"certificate and one authority for all", to.Name, o.DataStore), nil
		}
		place, err := other.Place(ctx, a)
		if err != nil {
			return "", err
		}
		for _, end := range []*store.Store{k.stores.Get(own.DataStore), to} {
			there, err := end.Place(ctx, a)
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
func (k *Keeper) againstPart(ctx context.Context, to *store.Store, a driver.Account, used ...*store.Store) (against string, err error) {
	if !account.SameAccess(used[0], to) {
		return fmt.Sprintf("DataStore %s is no etcd of the same certificateAuthority as DataStore %s: kube-apiserver has one certificate and one authority "+
			"for all", to.Name, used[0].Name), nil
	}
	there, err := to.Place(ctx, a)
	if err != nil || there == "" {
		return "", err
	}
	for _, other := range used {
		if other == to {
			continue
		}
		here, err := other.Place(ctx, a)
		if err != nil {
			return "", err
		}
		if here == there {
			return fmt.Sprintf("DataStores %s and %s are one database: name the one that the tenant uses already", to.Name, other.Name), nil
		}
	}
	return "", nil
}
