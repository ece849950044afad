// Package store knows the DataStores of an installation: their objects and what these refer to, one connection each, whether the
// database answers, and what its tenants hold. It wakes the tenants and DataStores that a change concerns.
//
// Files: registry.go has all DataStores and the tenants on each, resolve.go reads one with its Secrets, referenced.go watches these Secrets,
// connection.go and breaker.go open a driver and keep callers off a database that is away, drivers.go is the table of drivers, readiness.go
// says whether a DataStore can be used; probe.go, survey.go, sizes.go and compact.go look at databases now and then.
package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Registry holds the DataStores that this replica has to do with: one connection each, shared by all tenants on it. It is safe for
// concurrent use.
type Registry struct {
	read    func(ctx context.Context, name string) (*v1alpha1.DataStore, driver.Config, error)
	drivers map[v1alpha1.Driver]Kind
	log     *slog.Logger
	now     func() time.Time
	mu      sync.Mutex
	all     map[string]*Store
	wake    loop.Waker // of the watch that runs, nil while none does
	// onRead is called with each DataStore that was read, with nil if it doesn't exist.
	onRead     func(dataStore string, o *v1alpha1.DataStore)
	references *references
}

// New returns a registry without DataStores. namespaces are those whose Secrets DataStores may refer to.
func New(k *kube.Client, namespaces []string, drivers map[v1alpha1.Driver]Kind, log *slog.Logger, now func() time.Time) *Registry {
	r := &reader{kube: k, namespaces: namespaces}
	s := &Registry{read: r.read, drivers: drivers, log: log, now: now, all: map[string]*Store{}}
	s.references = newReferences(k, func(ctx context.Context, n string) {
		st := s.Get(n)
		st.Invalidate()
		_, _, _ = st.Load(ctx) // what is wrong is reported by the turns of those who need it
	})
	s.onRead = func(n string, o *v1alpha1.DataStore) { s.references.set(n, r.secretsOf(o)) }
	return s
}

// Run watches the Secrets that DataStores refer to, and looks at each DataStore and at what its tenants hold now and then, until ctx
// ends.
func (r *Registry) Run(ctx context.Context, held *partition.Held) {
	var wg sync.WaitGroup
	wg.Go(func() { r.references.run(ctx) })
	wg.Go(func() { r.probe(ctx) })
	wg.Go(func() { r.sample(ctx, held) })
	wg.Wait()
}

// Kine reports whether tenants reach databases of driver d through kine.
func (r *Registry) Kine(d v1alpha1.Driver) bool { return r.drivers[d].Kine }

// Store is one DataStore as this replica knows it: its object and connection (connection.go), whether the database answers
// (breaker.go), what it holds (sizes.go), and the tenants on it. It is safe for concurrent use: mu guards all fields below it.
type Store struct {
	Name string
	of   *Registry

	reading     sync.Mutex // held by the one that reads the object
	mu          sync.Mutex
	readAt      time.Time
	invalidated int // counts calls of Invalidate, so that what was read while one came is read again
	object      *v1alpha1.DataStore
	err         error // of reading or opening
	conn        *conn

	away    error // why the database is taken to be away, nil while it isn't
	retryAt time.Time
	pause   time.Duration
	pinging chan struct{} // closed when the caller that pings is done; nil when nobody does

	told   map[string]string // IDs of the last facts, by type
	warned string            // what the last check found that should be put right, a reason

	// latency of the last ping that was answered, 0 before the first.
	latency time.Duration
	// sizes by schema as measuredAt; nil when this replica doesn't measure them. mine says that it works on the DataStore,
	// not only on tenants there.
	sizes      map[string]driver.Size
	measuredAt time.Time
	mine       bool
	// compactedAt is when this replica compacted last, or tried to.
	compactedAt time.Time

	// annotations as the watch saw them last; resting says that they paused the DataStore then.
	annotations map[string]string
	resting     bool

	tenants map[events.Key]tenantOn // tenants on it that this replica has met
	waiting map[events.Key]struct{} // those of them that wait for it
}

// tenantOn is what a store remembers of a tenant since it was met. All but since is zero until its first turn has ended.
type tenantOn struct {
	since               time.Time
	schema, fingerprint string // of the account, as the last turn left it
	home                bool   // it is the tenant's own DataStore, whose sizes are reported; those of overrides aren't
	measured            bool
	size                driver.Size // as it was reported last
}

// Get returns the store of a DataStore, be there such an object or not.
func (r *Registry) Get(n string) *Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.all[n]
	if st == nil {
		st = &Store{Name: n, of: r, told: map[string]string{}, tenants: map[events.Key]tenantOn{}, waiting: map[events.Key]struct{}{}}
		r.all[n] = st
	}
	return st
}

// Forget removes a DataStore that has no tenants.
func (r *Registry) Forget(st *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.tenants)+len(st.waiting) == 0 && r.all[st.Name] == st {
		delete(r.all, st.Name)
	}
}

// Loaded returns a DataStore that can be used, by what its object and Secrets say now.
func (r *Registry) Loaded(ctx context.Context, n string) (*Store, error) {
	st := r.Get(n)
	st.Invalidate()
	_, opened, err := st.Load(ctx)
	if errors.Is(opened, ErrNoDataStore) {
		r.Forget(st)
	}
	return st, cmp.Or(err, opened)
}

// Names of all stores, sorted.
func (r *Registry) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.all))
}

// SetWaker sets the function that WakeAll calls.
func (r *Registry) SetWaker(wake loop.Waker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake = wake
}

// WakeAll wakes keys through the watch that runs, if one does.
func (r *Registry) WakeAll(keys []events.Key, w loop.Wake) {
	r.mu.Lock()
	wake := r.wake
	r.mu.Unlock()
	if wake == nil {
		return
	}
	for _, key := range keys {
		wake(key, w)
	}
}

// Dependency is the store's name on /readyz.
func (st *Store) Dependency() string { return "datastore " + st.Name }

// AddTenant notes a tenant on the DataStore.
func (st *Store) AddTenant(key events.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, known := st.tenants[key]; !known {
		st.tenants[key] = tenantOn{since: time.Now()}
	}
}

// RemoveTenant forgets a tenant.
func (st *Store) RemoveTenant(key events.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.tenants, key)
	delete(st.waiting, key)
}

// Keep forgets the tenants of partitions other than these.
func (st *Store) Keep(partitions []int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	maps.DeleteFunc(st.tenants, func(key events.Key, _ tenantOn) bool { return !slices.Contains(partitions, key.Partition()) })
	maps.DeleteFunc(st.waiting, func(key events.Key, _ struct{}) bool { return !slices.Contains(partitions, key.Partition()) })
}

// NoteAccount notes how a turn left a tenant's account.
func (st *Store) NoteAccount(key events.Key, as state.Datastore) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if was, known := st.tenants[key]; known {
		st.tenants[key] = tenantOn{
			since: was.since, schema: as.Schema, fingerprint: AccountIn(as, st.Name), home: as.DataStore == st.Name,
			measured: !as.MeasuredAt.IsZero(), size: driver.Size{Bytes: as.Bytes, Keys: as.Keys},
		}
	}
}

// homeTenants is how many tenants have the DataStore as their own. st.mu is held.
func (st *Store) homeTenants() (n int) {
	for _, on := range st.tenants {
		if on.home {
			n++
		}
	}
	return n
}

// AddWaiting notes a tenant to be woken when the store is there again.
func (st *Store) AddWaiting(key events.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.waiting[key] = struct{}{}
}

// WakeWaiting wakes those who wait.
func (st *Store) WakeWaiting() {
	st.mu.Lock()
	keys := slices.Collect(maps.Keys(st.waiting))
	clear(st.waiting)
	st.mu.Unlock()
	st.of.WakeAll(keys, loop.Wake{Kind: WakeDataStore})
}

// NoteFact records the ID of the last fact of a type, and reports whether it changed.
func (st *Store) NoteFact(what, id string) (changed bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	changed = st.told[what] != id
	st.told[what] = id
	return changed
}

// Observe notes what the watch shows of the DataStore and reports whether more than its status changed for its tenants: while it
// is paused nothing has, and when the pause ends everything may have.
func (st *Store) Observe(c kube.Change, now time.Time) (changed bool, tenants []events.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	rested := st.resting
	st.annotations = c.Object.Annotations
	st.resting, _, _ = name.Paused(st.annotations, now)
	known := st.object != nil && st.object.UID == c.Object.UID && st.object.Generation == c.Object.Generation && c.Type != watch.Deleted
	return (!known || rested) && !st.resting, slices.Collect(maps.Keys(st.tenants))
}

// Paused reports whether the DataStore is: then it is taken as it was read last.
func (st *Store) Paused(now time.Time) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	paused, _, _ := name.Paused(st.annotations, now)
	return paused
}

// PausedUntil is when a pause ends by itself, zero when it doesn't.
func (st *Store) PausedUntil(now time.Time) time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, until, _ := name.Paused(st.annotations, now)
	return until
}

// DropOrphan removes an account that belongs to no tenant.
func (st *Store) DropOrphan(ctx context.Context, o event.Orphan) (removed driver.Removed, err error) {
	err = st.Do(ctx, func(d driver.Driver) (err error) {
		a := driver.Account{Owner: o.Owner, Schema: o.Schema, User: o.User}
		// What isn't on record is looked for under the names that are this owner's alone.
		schema, user := d.Names(o.Owner)
		a.Schema, a.User = cmp.Or(a.Schema, schema), cmp.Or(a.User, user)
		removed, err = d.Drop(ctx, a)
		return err
	})
	return removed, err
}

// AccountIn is the fingerprint of the tenant's account in a DataStore, as it was left.
func AccountIn(own state.Datastore, dataStore string) string {
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
