package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
)

// A deletion waits for a DataStore that is away this long, and this many tries, from the moment it was its turn.
const (
	patience = 20 * time.Second
	minTries = 4
)

// remove wakes on workload.removed, when no pod of the tenant is left that could write. It removes data, user and role
// that are the tenant's, and both Secrets, and tells datastore.removed with what it removed and what it had to leave.
func (s *datastore) remove(ctx context.Context, t *events.Turn) error {
	own := state.Datastore{}
	if err := t.OwnData(&own); err != nil {
		return err
	}
	if t.Own() != nil && t.Own().Step == event.Removed {
		return nil
	}
	before, since := workloadRemoved(t)
	if before == nil {
		return t.Wait(ctx, "the control plane to be gone (workload.removed)")
	}
	removed, left, err := s.drop(ctx, t, own, since)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	found := [2]bool{}
	for i, secret := range []string{name.DatastoreConfig(t.Key.Name), name.DatastoreCertificate(t.Key.Name)} {
		g.Go(func() (err error) {
			found[i], err = s.kube.Delete(gctx, kube.Secrets, t.Key.Namespace, secret, metav1.DeleteOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, f := range found {
		if f {
			removed["Secret"]++
		}
	}
	if n := t.Tenant.Spec.DataStore; n != "" {
		s.stores.get(n).leaves(t.Key)
	}
	sum := event.Removals{About: t.About(), Removed: map[string]int{}, Left: before.Left}
	maps.Copy(sum.Removed, before.Removed)
	for kind, count := range removed {
		sum.Removed[name.ServiceDatastore+"/"+kind] = count
	}
	if left != "" {
		own.Left = []string{left}
		sum.Left = append(sum.Left, left)
	}
	return t.Done(ctx, events.Outcome{Step: event.Removed, Data: own, Facts: []events.Tell{{What: event.Removed, Data: sum}}})
}

// workloadRemoved finds what workload told about this very tenant, and when.
func workloadRemoved(t *events.Turn) (*event.Removals, time.Time) {
	for _, e := range t.Events {
		if e.Service != name.ServiceWorkload || e.What != event.Removed || e.Err != nil {
			continue
		}
		r := &event.Removals{}
		if json.Unmarshal(e.Data(), r) == nil && r.UID == t.UID {
			return r, e.Time()
		}
	}
	return nil, time.Time{}
}

// drop removes the tenant's data and user. What can't be removed within patience is left and described. An error means
// that the deletion is to be tried again.
func (s *datastore) drop(ctx context.Context, t *events.Turn, own state.Datastore, since time.Time) (removed driver.Removed, left string, err error) {
	removed = driver.Removed{}
	// Without a memory, as after the loss of NATS or a crash in the first provisioning, there may be something all the same.
	n, certain := own.DataStore, own.DataStore != ""
	if !certain {
		n = t.Tenant.Spec.DataStore
	}
	if n == "" {
		return removed, "", nil
	}
	account := accountOf(t.UID, &t.Tenant.Spec, own)
	st := s.stores.get(n)
	_, opened, err := st.load(ctx)
	if err != nil {
		return removed, "", err
	}
	var no *unsupported
	if errors.Is(opened, errNoDataStore) {
		if !certain {
			return removed, "", nil
		}
		return removed, leftBehind(n, own.Driver, account, certain, opened), nil
	}
	if errors.As(opened, &no) {
		return removed, "", nil // nothing was ever made there
	}
	err = opened
	if err == nil {
		err = st.do(ctx, func(d driver.Driver) (err error) {
			removed, err = d.Drop(ctx, account)
			return err
		})
	}
	var bad *driver.NameError
	switch {
	case err == nil, errors.As(err, &bad): // such names were never given to anybody
		return removed, "", nil
	case errors.Is(err, events.ErrFenced), ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return removed, "", err
	case t.Attempt()+1 >= minTries && s.now().Sub(since) >= patience:
		return removed, leftBehind(n, own.Driver, account, certain, err), nil
	}
	st.waits(t.Key)
	var away *events.Unavailable
	if !errors.As(err, &away) {
		// Not a failure that ends in the dead letters: the deletion goes on without it.
		err = &events.Unavailable{Dependency: st.dependency(), Err: err}
	}
	return removed, "", err
}

// leftBehind says what is left where, for whoever has to remove it by hand. It names the owner, for the names may be those
// of another tenant's schema and user, which this one was refused.
func leftBehind(dataStore, kind string, a driver.Account, certain bool, why error) string {
	is := "left"
	if !certain {
		is = "perhaps left"
	}
	what := fmt.Sprintf("schema %s and user %s, each if its owner is %s", a.Schema, a.User, a.Owner)
	if kind == string(v1alpha1.DriverEtcd) {
		what = etcd.Describe(a)
	}
	return fmt.Sprintf("%s in DataStore %s: %s: %v", is, dataStore, what, why)
}
