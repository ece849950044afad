package intake

// Which DataStore a tenant is given when nobody names one, and what every replica keeps in memory to know: all DataStores
// of the installation, and who is on which, by the label that intake puts on each tenant.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// assigned is the DataStore that a tenant has, empty for none yet. It is given once: where the data is, the record on the
// object and what was accepted before win over a default that changed meanwhile. Only spec.dataStore moves a tenant.
func assigned(o *v1alpha1.TenantControlPlane, before *state.Tenant, fallback string) string {
	accepted := ""
	if before != nil {
		accepted = before.Spec.DataStore
	}
	return cmp.Or(o.Spec.DataStore, o.Status.Storage.DataStoreName, o.Labels[name.LabelDataStore], accepted, fallback)
}

// record is the value of the tenant's label: the DataStore that holds its data, or will. While a tenant is to move, its data
// is still where it was.
func record(o *v1alpha1.TenantControlPlane, dataStore string) string {
	return cmp.Or(o.Status.Storage.DataStoreName, dataStore)
}

// labelOf returns the value of the DataStore's label for the apply of a tenant that asks for spec, there being what the
// API server has under its name, nil for nothing. It asks nobody. Empty means: no label with this apply. A tenant that is
// there keeps its own, and if it has none, sync adds it.
func (s *intake) labelOf(key events.Key, asked *v1alpha1.TenantControlPlane, there *metav1.ObjectMeta) (string, error) {
	if there != nil {
		return there.Labels[name.LabelDataStore], nil
	}
	fresh := &v1alpha1.TenantControlPlane{ObjectMeta: asked.ObjectMeta, Spec: asked.Spec} // whatever status it came with
	if ds := assigned(fresh, nil, s.fallback); ds != "" {
		return label(ds), nil
	}
	ds, _, err := s.place(key, asked.Annotations, len(asked.Spec.DataStoreOverrides) > 0)
	return ds, err
}

// place chooses a DataStore for a tenant, which may have overrides. Without any that fits, missing says which one would.
func (s *intake) place(key events.Key, annotations map[string]string, overrides bool) (dataStore, missing string, err error) {
	text := annotations[name.AnnotationDatastoreSelector]
	selector, bad := labels.Parse(text)
	if bad != nil {
		return "", fmt.Sprintf("a label selector in annotation %s: %q: %s", name.AnnotationDatastoreSelector, text, bad), nil
	}
	if overrides {
		selector = selector.DeepCopySelector().Add(onEtcd...)
	}
	return s.index.place(key, selector, time.Now())
}

// labelDriver is as if a label of each DataStore: its driver.
const labelDriver = "stoker.dev/driver"

// onEtcd is what dataStoreOverrides ask of a tenant's own DataStore.
var onEtcd, _ = labels.SelectorFromSet(labels.Set{labelDriver: string(v1alpha1.DriverEtcd)}).Requirements()

// label is a DataStore's name as the value of a label, none when it can't be one: there is no such DataStore, and who named
// it is refused for the name.
func label(dataStore string) string {
	if len(validation.IsValidLabelValue(dataStore)) > 0 {
		return ""
	}
	return dataStore
}

// store is what of a DataStore matters for giving it tenants.
type store struct {
	driver                  v1alpha1.Driver
	labels                  labels.Set
	ready, paused, deleting bool
	limits                  limits
	bytes                   int64 // that all tenants hold, as measured last
}

func storeOf(o *v1alpha1.DataStore, now time.Time) store {
	paused, _, _ := name.Paused(o.Annotations, now)
	s := store{
		driver: o.Spec.Driver, labels: labels.Merge(o.Labels, labels.Set{labelDriver: string(o.Spec.Driver)}), ready: o.Status.Ready, paused: paused, deleting: o.DeletionTimestamp != nil,
		limits: limitsOf(o.Annotations),
	}
	if o.Status.Usage != nil {
		s.bytes = o.Status.Usage.Bytes
	}
	return s
}

// takes reports whether a DataStore that is used by so many tenants is given new ones.
func (s store) takes(used int) bool {
	return s.closed(used) == ""
}

// choose returns the least full of the DataStores that take tenants and fit; of several the one with fewest tenants, then with
// fewest bytes, and then the first by name; empty for none.
func choose(stores map[string]store, used map[string]int, selector labels.Selector) string {
	best := ""
	for _, n := range slices.Sorted(maps.Keys(stores)) {
		s, b := stores[n], stores[best]
		if s.takes(used[n]) && selector.Matches(s.labels) && (best == "" || cmp.Or(
			cmp.Compare(s.fullness(used[n]), b.fullness(used[best])), cmp.Compare(used[n], used[best]), cmp.Compare(s.bytes, b.bytes),
		) < 0) {
			best = n
		}
	}
	return best
}

// missing says which DataStore a tenant waits for.
func missing(stores map[string]store, used map[string]int, selector labels.Selector) string {
	if len(stores) == 0 {
		return "a DataStore: there is none; name one in spec.dataStore or create one"
	}
	var why []string
	for _, n := range slices.Sorted(maps.Keys(stores)) {
		if s := stores[n]; selector.Matches(s.labels) {
			why = append(why, n+": "+s.closed(used[n]))
		}
	}
	of := "the DataStores"
	if !selector.Empty() {
		of = fmt.Sprintf("the DataStores with labels %q (annotation %s)", selector, name.AnnotationDatastoreSelector)
	}
	switch more := len(why) - maxNamed; {
	case len(why) == 0:
		return fmt.Sprintf("one of %s: there is none", of)
	case more > 0:
		why = append(why[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("one of %s to take tenants (%s)", of, strings.Join(why, "; "))
}

// maxNamed is how many DataStores are named that a tenant waits for.
const maxNamed = 5

// index is what a replica knows of DataStores and of who is on them, this installation's or not. It is safe for concurrent use.
type index struct {
	mu     sync.Mutex
	stores map[string]store
	// tenants by what their labels say, empty for no DataStore yet.
	tenants map[events.Key]seen
	used    map[string]int
	// given are DataStores given to tenants whose labels the watch has not shown yet. One whose apply was refused is
	// never shown, and forgotten.
	given map[events.Key]given
	// echoes are the fingerprints of what was accepted last, which the watch is about to show.
	echoes                      map[events.Key]string
	storesListed, tenantsListed bool
}

type seen struct {
	dataStore string
	// overrides hold something of it, too, as the annotation lists them.
	overrides string
	ours      bool // in the installation's scope
}

// on are the DataStores that a tenant uses, its own first; that is empty before it has one.
func (s seen) on() []string {
	return append([]string{s.dataStore}, slices.DeleteFunc(name.SplitOverrides(s.overrides), func(n string) bool { return n == s.dataStore })...)
}

type given struct {
	dataStore string
	at        time.Time
}

// givenFor is how long a DataStore that was given counts without having been seen.
const givenFor = 10 * time.Second

// errNotListed means that the replica has just begun and doesn't know yet what there is.
var errNotListed = errors.New("DataStores and tenants are not listed yet")

// begin forgets everything, for a watch that starts.
func (x *index) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stores, x.tenants, x.used, x.given = map[string]store{}, map[events.Key]seen{}, map[string]int{}, map[events.Key]given{}
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

// place gives a tenant a DataStore, the same one when asked again.
func (x *index) place(key events.Key, selector labels.Selector, now time.Time) (dataStore, why string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.storesListed || !x.tenantsListed {
		return "", "", &intent.Unavailable{Err: errNotListed}
	}
	for k, g := range x.given {
		if now.Sub(g.at) > givenFor {
			x.take(k)
		}
	}
	if g, ok := x.given[key]; ok && x.stores[g.dataStore].takes(x.used[g.dataStore]-1) && selector.Matches(x.stores[g.dataStore].labels) {
		return g.dataStore, "", nil
	}
	x.take(key)
	best := choose(x.stores, x.used, selector)
	if best == "" {
		return "", missing(x.stores, x.used, selector), nil
	}
	x.given[key] = given{best, now}
	x.used[best]++
	return best, "", nil
}

// promised reports whether DataStores are given to tenants that may never come.
func (x *index) promised() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.given) > 0
}

// wasFull reports whether a DataStore that takes tenants took none with one more of them.
func (x *index) wasFull(n string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stores[n]
	return s.takes(x.used[n]) && !s.takes(x.used[n]+1)
}

// take takes back what was given. x.mu is held.
func (x *index) take(key events.Key) {
	if g, ok := x.given[key]; ok {
		delete(x.given, key)
		x.used[g.dataStore]--
	}
}

// see notes what a tenant's object says and returns what it said before.
func (x *index) see(key events.Key, now seen) (before seen) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if now.dataStore != "" {
		x.take(key)
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
	x.take(key)
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
