package intake

// What every replica keeps in memory: all DataStores of the installation, and which tenant is on which, by the record that intake
// keeps on each.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// index is what a replica knows of DataStores and of who is on them, this installation's or not. It is safe for concurrent use.
type index struct {
	mu      sync.Mutex
	stores  map[string]store
	tenants map[events.Key]seen
	// used counts the tenants on each DataStore, reservations included.
	used map[string]int
	// reservations are for tenants whose records the watch has not shown yet. One whose apply was
	// refused is never shown, and its reservation ends after reservedFor.
	reservations map[events.Key]reservation
	// echoes are the fingerprints of what was accepted last, which the watch is about to show.
	echoes                      map[events.Key]string
	storesListed, tenantsListed bool
}

// seen is what the watch showed of a tenant.
type seen struct {
	// dataStore it was assigned to, empty before it was to one.
	dataStore string
	// overrides hold something of it, too, as the annotation lists them.
	overrides string
	ours      bool // in the installation's scope
	// fingerprint of the object, if it is ours.
	fingerprint string
}

// on are the DataStores that a tenant uses, its own first; that is empty before it has one.
func (s seen) on() []string {
	others := slices.DeleteFunc(name.SplitOverrides(s.overrides), func(n string) bool { return n == s.dataStore })
	return append([]string{s.dataStore}, others...)
}

// reservation is the DataStore that was chosen for a tenant, and when.
type reservation struct {
	dataStore string
	at        time.Time
}

// errNotListed means that the replica has just begun and doesn't know yet what there is.
var errNotListed = errors.New("DataStores and tenants are not listed yet")

// stay forgets what was expected of tenants in partitions other than these: since then, another replica may have accepted them.
func (x *index) stay(partitions []int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.echoes, func(key events.Key, _ string) bool { return !slices.Contains(partitions, key.Partition()) })
}

// in returns what was seen of the tenants in partitions.
func (x *index) in(partitions []int) map[events.Key]seen {
	x.mu.Lock()
	defer x.mu.Unlock()
	tenants := map[events.Key]seen{}
	for key, s := range x.tenants {
		if slices.Contains(partitions, key.Partition()) {
			tenants[key] = s
		}
	}
	return tenants
}

// reset forgets everything, for a watch that starts.
func (x *index) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stores, x.tenants, x.used, x.reservations = map[string]store{}, map[events.Key]seen{}, map[string]int{}, map[events.Key]reservation{}
	x.echoes = map[events.Key]string{}
	x.storesListed, x.tenantsListed = false, false
}

// expect notes what the watch will show of a tenant that was just accepted.
func (x *index) expect(key events.Key, fingerprint string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.echoes != nil {
		x.echoes[key] = fingerprint
	}
}

// known reports whether a watch showed no more than what was expected. Only once: whatever else it shows is looked at.
func (x *index) known(key events.Key, wakes []loop.Wake) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	echo, expected := x.echoes[key]
	if !expected || len(wakes) != 1 || wakes[0] != (loop.Wake{Kind: wakeTenant, Version: echo}) {
		return false
	}
	delete(x.echoes, key)
	return true
}

// listed notes that everything there is of a kind has been seen, and reports whether that goes for both.
func (x *index) listed(kind string) (complete bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.storesListed = x.storesListed || kind == event.DataStores
	x.tenantsListed = x.tenantsListed || kind == event.TenantControlPlanes
	return x.storesListed && x.tenantsListed
}

// complete reports whether both kinds were listed.
func (x *index) complete() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.storesListed && x.tenantsListed
}

// reserve chooses a DataStore for a tenant, the same one when asked again. Without any that takes it, missing says which would.
// [intent.Unavailable] before everything is listed.
func (x *index) reserve(key events.Key, selector labels.Selector, now time.Time) (dataStore, missing string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.storesListed || !x.tenantsListed {
		return "", "", &intent.Unavailable{Err: errNotListed}
	}
	for k, r := range x.reservations {
		if now.Sub(r.at) > reservedFor {
			x.cancel(k)
		}
	}
	if r, ok := x.reservations[key]; ok {
		if s := x.stores[r.dataStore]; s.takes(x.used[r.dataStore]-1) && selector.Matches(s.labels) {
			return r.dataStore, "", nil
		}
	}
	x.cancel(key)
	best := choose(x.stores, x.used, selector)
	if best == "" {
		return "", missingStore(x.stores, x.used, selector), nil
	}
	x.reservations[key] = reservation{best, now}
	x.used[best]++
	return best, "", nil
}

// hasReservations reports whether there are reservations, of which one may end unused.
func (x *index) hasReservations() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.reservations) > 0
}

// wasFull reports whether a DataStore that takes tenants took none with one more of them.
func (x *index) wasFull(n string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stores[n]
	return s.takes(x.used[n]) && !s.takes(x.used[n]+1)
}

// cancel ends a tenant's reservation, if it has one: it doesn't count any more. x.mu is held.
func (x *index) cancel(key events.Key) {
	if r, ok := x.reservations[key]; ok {
		delete(x.reservations, key)
		x.used[r.dataStore]--
	}
}

// see notes what a tenant's object says and returns what it said before.
func (x *index) see(key events.Key, now seen) (before seen) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if now.dataStore != "" {
		x.cancel(key)
	}
	before, known := x.tenants[key]
	if known {
		x.count(before, -1)
	}
	x.count(now, 1)
	x.tenants[key] = now
	return before
}

// drop forgets a tenant that is gone.
func (x *index) drop(key events.Key) (before seen) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cancel(key)
	delete(x.echoes, key)
	before, known := x.tenants[key]
	if known {
		x.count(before, -1)
		delete(x.tenants, key)
	}
	return before
}

// count adds to the number of tenants on DataStores. x.mu is held.
func (x *index) count(s seen, n int) {
	for _, ds := range s.on() {
		x.used[ds] += n
	}
}

// usedBy lists a DataStore's tenants as namespace/name, sorted.
func (x *index) usedBy(dataStore string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	users := []string{}
	for key, s := range x.tenants {
		if slices.Contains(s.on(), dataStore) {
			users = append(users, key.String())
		}
	}
	slices.Sort(users)
	return users
}

// users is usedBy with those of before that have no DataStore by their record: tenants that Kamaji made, as it noted them.
func (x *index) users(dataStore string, before []string) []string {
	users := x.usedBy(dataStore)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, user := range before {
		namespace, named, _ := strings.Cut(user, "/")
		if s, there := x.tenants[events.Tenant(namespace, named)]; there && s.dataStore == "" {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// ours are the installation's tenants and DataStores in partitions.
func (x *index) ours(partitions []int) []events.Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []events.Key
	for key, s := range x.tenants {
		if s.ours && slices.Contains(partitions, key.Partition()) {
			keys = append(keys, key)
		}
	}
	for n := range x.stores {
		if key := events.DataStore(n); slices.Contains(partitions, key.Partition()) {
			keys = append(keys, key)
		}
	}
	return keys
}

// tenantsOf are the installation's tenants of a namespace and name, sorted; empty ones stand for all.
func (x *index) tenantsOf(namespace, named string) []events.Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []events.Key
	for key, s := range x.tenants {
		if s.ours && (namespace == "" || key.Namespace == namespace) && (named == "" || key.Name == named) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b events.Key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// unplaced are the installation's tenants that have no DataStore.
func (x *index) unplaced() []events.Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []events.Key
	for key, s := range x.tenants {
		if s.ours && s.dataStore == "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// deleting are the DataStores that are to go.
func (x *index) deleting() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var names []string
	for n, s := range x.stores {
		if s.deleting {
			names = append(names, n)
		}
	}
	return names
}

// know notes a DataStore, nil for one that is gone, and returns what it was before.
func (x *index) know(n string, now *store) (before *store) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.stores[n]; ok {
		before = &b
	}
	if now == nil {
		delete(x.stores, n)
	} else {
		x.stores[n] = *now
	}
	return before
}

// all returns the DataStores there are.
func (x *index) all() map[string]store {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.stores)
}

// reader keeps the index's DataStores: whether one is ready isn't in its metadata, which is all a watch shows.
type reader struct {
	kube  *kube.Client
	index *index
	// changed is told of a DataStore that was read, and what of it was known before; either is nil where there is none.
	changed func(n string, before, now *store)

	mu     sync.Mutex
	unread map[string]struct{}
	all    bool // every DataStore there is has been named
	news   chan struct{}
}

func newReader(k *kube.Client, x *index, changed func(n string, before, now *store)) *reader {
	return &reader{kube: k, index: x, changed: changed, unread: map[string]struct{}{}, news: make(chan struct{}, 1)}
}

// note makes run read a DataStore; it doesn't block.
func (r *reader) note(n string) {
	r.mu.Lock()
	r.unread[n] = struct{}{}
	r.mu.Unlock()
	r.wake()
}

// noteAll says that all there are have been noted.
func (r *reader) noteAll() {
	r.mu.Lock()
	r.all = true
	r.mu.Unlock()
	r.wake()
}

func (r *reader) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// run reads until ctx ends; listed is called once all there were at the beginning have been read.
func (r *reader) run(ctx context.Context, listed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.news:
		}
		r.mu.Lock()
		unread, all, failed := r.unread, r.all, false
		r.unread = map[string]struct{}{}
		r.mu.Unlock()
		for n := range unread {
			if err := r.read(ctx, n); err != nil {
				// The API server is away, and says so on /readyz.
				failed = true
				r.note(n)
			}
		}
		switch {
		case failed:
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		case all && listed != nil:
			listed()
			listed = nil
		}
	}
}

func (r *reader) read(ctx context.Context, n string) error {
	o := &v1alpha1.DataStore{}
	err := r.kube.Get(ctx, kube.DataStores, "", n, o)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var now *store
	if err == nil && r.kube.InScope(kube.DataStores, &o.ObjectMeta) {
		s := storeOf(o, time.Now())
		now = &s
	}
	r.changed(n, r.index.know(n, now), now)
	return nil
}
