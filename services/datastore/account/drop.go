package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// RemoveSecrets deletes the Secrets that were made for the tenant, adds to removed what it had removed, and returns those that are kept.
func (p *Provisioner) RemoveSecrets(ctx context.Context, t *loop.Turn, removed map[string]int) (held []*kube.HeldError, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for _, secret := range []string{
		name.DatastoreConfig(t.Key.Name), name.DatastoreCertificate(t.Key.Name),
		name.MovingDatastoreConfig(t.Key.Name), name.MovingDatastoreCertificate(t.Key.Name),
	} {
		g.Go(func() error {
			deleted, err := p.kube.RemoveOwned(ctx, kube.Secrets, t.Key.Namespace, secret, kube.Owner{Name: t.Key.Name, UID: t.UID})
			kept := (*kube.HeldError)(nil)
			if errors.As(err, &kept) {
				kept, err = p.release(ctx, kept)
			}
			mu.Lock()
			defer mu.Unlock()
			if deleted {
				removed[kube.Secrets.Kind]++
			}
			if kept != nil {
				held = append(held, kept)
			}
			return err
		})
	}
	err = g.Wait()
	return held, err
}

// release takes Kamaji's finalizer off a Secret that was deleted before the tenant was provisioned, and returns what keeps the Secret
// besides; nil for nothing.
func (p *Provisioner) release(ctx context.Context, kept *kube.HeldError) (*kube.HeldError, error) {
	i := slices.Index(kept.Finalizers, name.FinalizerDatastoreSecret)
	if i < 0 {
		return kept, nil
	}
	at := "/metadata/finalizers/" + strconv.Itoa(i)
	err := p.kube.JSONPatch(ctx, kube.Secrets, kept.Namespace, kept.Name, []map[string]any{
		{"op": "test", "path": at, "value": name.FinalizerDatastoreSecret},
		{"op": "remove", "path": at},
	}, nil)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	kept.Finalizers = slices.Delete(kept.Finalizers, i, i+1)
	if len(kept.Finalizers) == 0 {
		kept = nil
	}
	return kept, nil
}

// place is a DataStore that may hold something of a tenant.
type place struct {
	dataStore string
	driver    v1alpha1.Driver // empty when it isn't known
	// certain: something was made there. Without a memory, as after the loss of NATS or a crash in the first provisioning,
	// there may be something all the same.
	certain bool
	// schema and user there, where they are others than those of the tenant's own account.
	schema, user string
}

// DataStoresOf names the DataStores that may hold something of a tenant, its own first.
func DataStoresOf(t *state.Tenant, own state.Datastore) (names []string) {
	for _, p := range placesOf(t, own) {
		names = append(names, p.dataStore)
	}
	return names
}

// placesOf are the DataStores that may hold something of a tenant, its own first.
func placesOf(t *state.Tenant, own state.Datastore) []place {
	var places []place
	if n := HomeOf(t, own); n != "" {
		places = append(places, place{dataStore: n, driver: v1alpha1.Driver(own.Driver), certain: own.DataStore != ""})
	}
	if m := own.Move; m != nil && m.Schema != "" && m.DataStore != own.DataStore {
		places = append(places, keptPlace(state.Kept{DataStore: m.DataStore, Driver: m.Driver, Schema: m.Schema, User: m.User}))
	}
	for _, k := range own.Kept {
		places = append(places, keptPlace(k))
	}
	for _, o := range OverridesOf(t, own) {
		if !slices.ContainsFunc(places, func(p place) bool { return p.dataStore == o.DataStore }) {
			places = append(places, overridePlace(o))
		}
	}
	return places
}

// overridePlace is the place of an override, which only etcds can be, or of what was there before it or a move.
func overridePlace(o state.Override) place {
	p := place{dataStore: o.DataStore, certain: o.Account != ""}
	if len(o.Resources) > 0 || p.certain {
		p.driver = v1alpha1.DriverEtcd
	}
	return p
}

// DropAll removes the tenant's data and users wherever it has some, counts that in own, and says what it had to leave. An
// error means that the deletion is to be tried again; what was removed by then is noted.
func (p *Provisioner) DropAll(ctx context.Context, t *loop.Turn, own *state.Datastore, since time.Time) (left []string, err error) {
	if own.Removed == nil {
		own.Removed = map[string]int{}
	}
	places := placesOf(t.Tenant, *own)
	if len(places) == 0 {
		return nil, nil
	}
	account, held, err := p.account(ctx, t, *own)
	if err != nil {
		return nil, err
	}
	if held != nil {
		places[0].certain = true
		if other := held.Schema != account.Schema || held.User != account.User; other && held.Schema != "" { // from another management cluster
			places = append(places, place{dataStore: places[0].dataStore, schema: held.Schema, user: held.User})
		}
	}
	type result struct {
		removed driver.Removed
		left    string
		err     error
	}
	results, some := make([]result, len(places)), false
	var wg sync.WaitGroup
	for i, target := range places {
		wg.Go(func() {
			r := &results[i]
			account := account
			account.Remembered = account.Remembered && i == 0
			if target.schema != "" {
				account = driver.Account{Owner: account.Owner, Schema: target.schema, User: target.user, Remembered: target.certain}
			}
			r.removed, r.left, r.err = p.drop(ctx, t, target, account, since)
		})
	}
	wg.Wait()
	for _, r := range results {
		for kind, n := range r.removed {
			own.Removed[kind] += n
			some = true
		}
		if r.left != "" {
			left = append(left, r.left)
		}
		err = errors.Join(err, r.err)
	}
	if err != nil && some && len(places) > 1 && ctx.Err() == nil {
		was := &state.State{}
		if o := t.Own(); o != nil {
			was = o
		}
		err = errors.Join(t.Done(ctx, loop.Outcome{Step: was.Step, Inputs: was.Inputs, Wait: was.Wait, Data: *own}), err)
	}
	return left, err
}

// drop removes the tenant's data and user from one DataStore. What can't be removed within patience is left and described. An
// error means that it is to be tried again.
func (p *Provisioner) drop(
	ctx context.Context, t *loop.Turn, target place, account driver.Account, since time.Time,
) (removed driver.Removed, left string, err error) {
	st := p.stores.Get(target.dataStore)
	var opened error
	if _, opened, err = st.Load(ctx); err != nil {
		return nil, "", err
	}
	var no *store.UnsupportedError
	if errors.Is(opened, store.ErrNoDataStore) {
		if !target.certain {
			return nil, "", nil
		}
		return nil, leftBehind(target, account, opened), nil
	}
	if errors.As(opened, &no) {
		return nil, "", nil // nothing was ever made there
	}
	err = opened
	if err == nil {
		dropping, cancel := context.WithTimeout(ctx, longestDrop)
		defer cancel()
		err = st.Do(dropping, func(d driver.Driver) (err error) {
			removed, err = d.Drop(dropping, account)
			return err
		})
	}
	var bad *driver.NameError
	switch {
	case err == nil, errors.As(err, &bad): // nobody ever got such names
		return removed, "", nil
	case errors.Is(err, fence.ErrFenced), ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return removed, "", err
	case t.Attempt()+1 >= minTries && p.now().Sub(since) >= patience:
		return removed, leftBehind(target, account, err), nil
	}
	st.AddWaiting(t.Key)
	var away *intent.Unavailable
	if !errors.As(err, &away) {
		// Not a failure that ends in the dead letters: the deletion goes on without it.
		err = &intent.Unavailable{Dependency: st.Dependency(), Err: err}
	}
	return removed, "", err
}

// leftBehind says what is left where, for whoever has to remove it by hand. It names the owner, for the names may be those
// of another tenant's schema and user, which this one was refused.
func leftBehind(p place, a driver.Account, why error) string {
	is := "left"
	if !p.certain {
		is = "perhaps left"
	}
	return fmt.Sprintf("%s in DataStore %s: %s: %v", is, p.dataStore, store.Describe(p.driver, a), why)
}
