package data

// What a tenant keeps is in one DataStore, or, with dataStoreOverrides, in several, etcds all. Here they are read and written as one.

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/move"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// part is what of a tenant's data is in one DataStore.
type part struct {
	account.Side
	// prefixes begin the keys that are here and nowhere else; nil for the tenant's own DataStore, which has all that isn't elsewhere.
	prefixes, elsewhere []string
}

// has reports whether a key is in this part. What a part holds of another's keys is left from before there was an override, and no API
// server reads it.
func (p part) has(key string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	if p.prefixes == nil {
		return !slices.ContainsFunc(p.elsewhere, begins)
	}
	return slices.ContainsFunc(p.prefixes, begins)
}

// of are the keys of this part.
func (p part) of(all iter.Seq2[driver.Change, error]) iter.Seq2[driver.Change, error] {
	return move.Only(all, p.has)
}

// hasOf reports of a key whether it is one of some resources'.
func hasOf(resources []string) func(key string) bool {
	return part{prefixes: append([]string{}, account.PrefixesOf(resources...)...)}.has
}

// partsOf are the parts of a tenant's data, its own DataStore's the first.
func (k *Keeper) partsOf(ctx context.Context, key events.Key, main *store.Store, a driver.Account, overrides []state.Override) ([]part, error) {
	own, err := k.accounts.Reach(ctx, key, main, a)
	if err != nil {
		return nil, err
	}
	parts := []part{{Side: own}}
	if len(account.NamesOf(overrides)) == 0 {
		return parts, nil
	}
	here, err := main.Place(ctx, a)
	if err != nil {
		return nil, err
	}
	places := []string{here} // of parts: DataStores that are names of one database are one part
	for _, o := range overrides {
		if len(o.Resources) == 0 {
			continue
		}
		other := part{Side: own, prefixes: []string{}}
		other.Store = k.stores.Get(o.DataStore)
		if _, opened, err := other.Store.Load(ctx); err != nil || opened != nil {
			return nil, errors.Join(opened, err)
		}
		there, err := other.Store.Place(ctx, a)
		if err != nil {
			return nil, err
		}
		i := slices.Index(places, there)
		if i == 0 {
			continue
		}
		if i < 0 {
			i = len(parts)
			parts, places = append(parts, other), append(places, there)
		}
		for _, resource := range o.Resources {
			parts[i].prefixes = append(parts[i].prefixes, account.PrefixesOf(resource)...)
			parts[0].elsewhere = append(parts[0].elsewhere, account.PrefixesOf(resource)...)
		}
	}
	return parts, nil
}

// inParts calls f with access to the databases of all parts. What else goes wrong meanwhile tells nothing of the databases, so their stores
// don't hear of it: they find out by themselves.
func inParts(ctx context.Context, parts []part, f func([]driver.DataAccess) error) (err error) {
	var all []driver.DataAccess
	var enter func(int) error
	enter = func(i int) (err error) {
		if i == len(parts) {
			return f(all)
		}
		opened := parts[i].Store.Do(ctx, func(d driver.Driver) error {
			access, ok := d.(driver.DataAccess)
			if !ok {
				err = errNoAccess
				return nil
			}
			all = append(all, access)
			err = enter(i + 1)
			return nil
		})
		return errors.Join(opened, err)
	}
	return enter(0)
}

// exportOf calls f with all that a tenant keeps, each part as it is at one revision, and with the highest of these. What a part holds that was
// compacted meanwhile ends the export with driver.ErrCompacted.
func exportOf(
	ctx context.Context, parts []part, accesses []driver.DataAccess, f func(revision int64, all iter.Seq2[driver.Change, error]) error,
) (err error) {
	data, revisions := make([]driver.Data, len(parts)), make([]int64, len(parts))
	for i, p := range parts {
		if data[i], err = accesses[i].Data(ctx, p.Account, p.Access); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, data[i].Close()) }()
	}
	for i := range parts {
		if revisions[i], err = data[i].Revision(ctx); err != nil {
			return err
		}
	}
	return f(slices.Max(revisions), func(yield func(driver.Change, error) bool) {
		for i, p := range parts {
			for c, err := range p.of(data[i].Export(ctx, revisions[i])) {
				if !yield(c, err) || err != nil {
					return
				}
			}
		}
	})
}
