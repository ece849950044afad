package datastore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Times of a store.
const (
	// fresh is how long what was read of a DataStore and its Secrets is taken for true without a watch saying otherwise.
	fresh = 30 * time.Second
	// An away DataStore is tried again after firstPause, twice that, … longestPause, by one caller at a time.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
)

// stores are the DataStores that this replica has to do with: one connection each, shared by all tenants on it.
type stores struct {
	read    func(ctx context.Context, name string) (*v1alpha1.DataStore, driver.Config, error)
	drivers map[v1alpha1.Driver]driver.Open
	mu      sync.Mutex
	all     map[string]*store
	wake    loop.Waker // of the watch that runs
	// refer is told of what was read of a DataStore, nil when there is none; may be nil.
	refer func(dataStore string, o *v1alpha1.DataStore)
}

func newStores(r *reader, drivers map[v1alpha1.Driver]driver.Open) *stores {
	return &stores{read: r.read, drivers: drivers, all: map[string]*store{}}
}

// store is one DataStore. It doubles as a circuit breaker: while the database is known to be away, one caller at a time
// looks whether it is back, and all others are told at once. All fields below mu are guarded by it.
type store struct {
	name string
	of   *stores

	reading sync.Mutex // one reader of the object at a time
	mu      sync.Mutex
	readAt  time.Time
	changes int // counts stale calls, so that a read under way when one came isn't taken for fresh
	object  *v1alpha1.DataStore
	err     error // of reading or opening
	conn    *conn

	away    error
	retryAt time.Time
	pause   time.Duration
	looking chan struct{} // closed when the caller who looks is done; nil when nobody does
	told    string        // id of the last fact checked
	weighed string        // id of the last fact measured

	// latency of the last check that was answered, 0 before the first.
	latency time.Duration
	// sizes by schema as measuredAt; nil when this replica doesn't measure them. mine says that it works on the DataStore,
	// not only on tenants there.
	sizes      map[string]driver.Size
	measuredAt time.Time
	mine       bool

	// annotations as the watch saw them last; resting says that they paused the DataStore then.
	annotations map[string]string
	resting     bool

	users   map[events.Key]left     // tenants on it that this replica has met
	waiting map[events.Key]struct{} // those of them that wait for it
}

// conn is an open driver; it is closed when replaced and no longer used.
type conn struct {
	driver.Driver
	sum     string // of its whole configuration
	tenants string // of what of it shows in the tenants' Secrets
	uses    sync.WaitGroup
}

// get returns the store of a DataStore, be there such an object or not.
func (s *stores) get(n string) *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.all[n]
	if st == nil {
		st = &store{name: n, of: s, users: map[events.Key]left{}, waiting: map[events.Key]struct{}{}}
		s.all[n] = st
	}
	return st
}

// forget drops a store that nobody uses.
func (s *stores) forget(st *store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.users)+len(st.waiting) == 0 && s.all[st.name] == st {
		delete(s.all, st.name)
	}
}

// toTell notes the id of a fact and reports whether it is another than the last.
func (st *store) toTell(id string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	other := st.told != id
	st.told = id
	return other
}

// toTellUsage does what toTell does, for the fact measured.
func (st *store) toTellUsage(id string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	other := st.weighed != id
	st.weighed = id
	return other
}

// names of all stores, sorted.
func (s *stores) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.all))
}

// woken wakes keys through the watch that runs, if one does.
func (s *stores) woken(keys []events.Key, w loop.Wake) {
	s.mu.Lock()
	wake := s.wake
	s.mu.Unlock()
	if wake == nil {
		return
	}
	for _, key := range keys {
		wake(key, w)
	}
}

// dependency is the store's name on /readyz.
func (st *store) dependency() string { return "datastore " + st.name }

// joins notes a tenant on the store, leaves forgets it.
func (st *store) joins(key events.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, known := st.users[key]; !known {
		st.users[key] = left{since: time.Now()}
	}
}

// left is how a tenant was left, since it was met: the fingerprint of its schema and user, and how much it held if it was
// measured; zero before it is known.
type left struct {
	since               time.Time
	schema, fingerprint string
	home                bool // what it holds here is told; of overrides it isn't
	measured            bool
	size                driver.Size
}

// leftAs notes how a tenant's account was left.
func (st *store) leftAs(key events.Key, as state.Datastore) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if was, known := st.users[key]; known {
		st.users[key] = left{
			since: was.since, schema: as.Schema, fingerprint: accountIn(as, st.name), home: as.DataStore == st.name,
			measured: !as.MeasuredAt.IsZero(), size: driver.Size{Bytes: as.Bytes, Keys: as.Keys},
		}
	}
}

func (st *store) leaves(key events.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.users, key)
	delete(st.waiting, key)
}

// driver is the open one, nil without one.
func (st *store) driver() driver.Driver {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.conn == nil {
		return nil
	}
	return st.conn.Driver
}

// tenantsPart is that of the open driver, empty without one.
func (st *store) tenantsPart() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.conn == nil {
		return ""
	}
	return st.conn.tenants
}

// waits notes a tenant to be woken when the store is there again.
func (st *store) waits(key events.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.waiting[key] = struct{}{}
}

// saw notes what the watch shows of the DataStore and reports whether more than its status changed for its users: while it
// is paused nothing has, and when the pause ends everything may have.
func (st *store) saw(c kube.Change, now time.Time) (news bool, users []events.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	rested := st.resting
	st.annotations = c.Object.Annotations
	st.resting, _, _ = name.Paused(st.annotations, now)
	known := st.object != nil && st.object.UID == c.Object.UID && st.object.Generation == c.Object.Generation && c.Type != watch.Deleted
	return (!known || rested) && !st.resting, slices.Collect(maps.Keys(st.users))
}

// paused reports whether the DataStore is: then it is taken as it was read last.
func (st *store) paused(now time.Time) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	paused, _, _ := name.Paused(st.annotations, now)
	return paused
}

// pausedUntil is when a pause ends by itself, zero when it doesn't.
func (st *store) pausedUntil(now time.Time) time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, until, _ := name.Paused(st.annotations, now)
	return until
}

// stale makes the next load read again.
func (st *store) stale() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.readAt = time.Time{}
	st.changes++
}

// release wakes those who wait.
func (st *store) release() {
	st.mu.Lock()
	keys := slices.Collect(maps.Keys(st.waiting))
	clear(st.waiting)
	st.mu.Unlock()
	st.of.woken(keys, loop.Wake{Kind: wakeDataStore})
}

// load returns the DataStore as read within the last moments; opened tells whether its driver could be made. Errors of
// the management API are returned, what is wrong with the DataStore itself is opened: errNoDataStore,
// *driver.ConfigError, *unsupported.
func (st *store) load(ctx context.Context) (object *v1alpha1.DataStore, opened, err error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	st.mu.Lock()
	paused, _, _ := name.Paused(st.annotations, time.Now())
	known := time.Since(st.readAt) < fresh || paused && st.object != nil
	changes := st.changes
	object, opened = st.object, st.err
	st.mu.Unlock()
	if known {
		return object, opened, nil
	}
	object, cfg, opened := st.of.read(ctx, st.name)
	var bad *driver.ConfigError
	if opened != nil && !errors.Is(opened, errNoDataStore) && !errors.As(opened, &bad) {
		return nil, nil, opened
	}
	if st.of.refer != nil {
		st.of.refer(st.name, object)
	}
	sum := cfg.Checksum()
	st.mu.Lock()
	next := st.conn
	if opened != nil || next != nil && (next.sum != sum || st.object.UID != object.UID) {
		next = nil
	}
	st.mu.Unlock()
	if opened == nil && next == nil {
		if open := st.of.drivers[object.Spec.Driver]; open == nil {
			opened = &unsupported{object, slices.Sorted(maps.Keys(st.of.drivers))}
		} else if d, err := open(cfg); err != nil {
			opened = err
		} else {
			next = &conn{Driver: d, sum: sum, tenants: tenantsPart(object.Spec.Driver, cfg)}
		}
	}
	st.mu.Lock()
	old := st.conn
	changed := old != next || fmt.Sprint(st.err) != fmt.Sprint(opened)
	if st.object == nil && st.err == nil && errors.Is(opened, errNoDataStore) {
		// A name of nothing. Waking for it would make a store for the name again, which reads again, and so on.
		changed = false
	}
	st.object, st.err, st.readAt = object, opened, time.Now()
	switch {
	case st.changes != changes:
		st.readAt = time.Time{}
	case opened != nil:
		// Mended Secrets are no event; read again soon.
		st.readAt = st.readAt.Add(longestPause - fresh)
	}
	if old != next {
		// Whoever uses the new one first finds out whether it answers.
		st.conn, st.away, st.pause = next, errNotTried, 0
		st.looked()
		if old != nil {
			go func() { old.uses.Wait(); _ = old.Close() }()
		}
	}
	keys := []events.Key{events.DataStore(st.name)}
	for key := range st.users {
		// Another authority or endpoint may mean other Secrets. The first connection concerns those who missed it.
		if _, waits := st.waiting[key]; waits || old != nil {
			keys = append(keys, key)
		}
	}
	st.mu.Unlock()
	if changed {
		st.of.woken(keys, loop.Wake{Kind: wakeDataStore})
	}
	return object, opened, nil
}

// looked lets those go on who wait for a look. st.mu is held.
func (st *store) looked() {
	if st.looking != nil {
		close(st.looking)
		st.looking = nil
	}
}

// tenantsPart is a fingerprint of what of a configuration shows in the tenants' Secrets.
func tenantsPart(kind v1alpha1.Driver, c driver.Config) string {
	if kind == v1alpha1.DriverNATS {
		return c.Checksum() // who tenants are comes from who the administrator is
	}
	part := map[string][]byte{"endpoints": []byte(strings.Join(c.Endpoints, ",")), "ca": c.CA}
	if c.CAKey == nil {
		part["signs"] = nil // without the authority's key, tenants have no certificates
	}
	return name.Checksum(part)
}

// errNotTried is the state of a connection nobody has used yet.
var errNotTried = errors.New("not tried yet")

// unsupported means that the DataStore's kind has no driver here.
type unsupported struct {
	object *v1alpha1.DataStore
	have   []v1alpha1.Driver
}

func (e *unsupported) Error() string {
	have := make([]string, 0, len(e.have))
	for _, d := range e.have {
		have = append(have, string(d))
	}
	return fmt.Sprintf("driver %q of DataStore %s is not supported, only %s", e.object.Spec.Driver, e.object.Name, strings.Join(have, ", "))
}

// do calls f with the driver, unless the database is known to be away. An outage, before or in f, is *intent.Unavailable;
// other errors are f's.
func (st *store) do(ctx context.Context, f func(driver.Driver) error) error {
	return st.use(ctx, false, f)
}

// look asks the database whether it is there, also when it was a moment ago.
func (st *store) look(ctx context.Context) error {
	return st.use(ctx, true, func(driver.Driver) error { return nil })
}

func (st *store) use(ctx context.Context, look bool, f func(driver.Driver) error) error {
	if err := fence.Check(ctx); err != nil {
		return err
	}
	var c *conn
	for {
		st.mu.Lock()
		if c = st.conn; c == nil {
			st.mu.Unlock()
			return &intent.Unavailable{Dependency: st.dependency(), Err: errors.New("no connection")}
		}
		untried := errors.Is(st.away, errNotTried)
		if looking := st.looking; untried && looking != nil {
			st.mu.Unlock()
			select {
			case <-looking:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if away := st.away; away != nil {
			if st.looking != nil || !untried && time.Now().Before(st.retryAt) {
				st.mu.Unlock()
				return &intent.Unavailable{Dependency: st.dependency(), Err: away}
			}
			look = true
			st.looking = make(chan struct{})
		}
		c.uses.Add(1)
		st.mu.Unlock()
		break
	}
	defer c.uses.Done()
	if look {
		began := time.Now()
		err := c.Check(ctx)
		st.answered(err, time.Since(began))
		st.found(c, err)
		if err != nil {
			return st.intent(ctx, err)
		}
	}
	err := f(c.Driver)
	if errors.Is(err, driver.ErrAway) {
		st.found(c, err)
		return st.intent(ctx, err)
	}
	return err
}

// intent gives an outage its intent; a turn that was called off is none.
func (st *store) intent(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &intent.Unavailable{Dependency: st.dependency(), Err: err}
}

// answered notes how long a check took that was answered.
func (st *store) answered(err error, took time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err == nil {
		st.latency = took
	}
}

// found notes whether the database answered.
func (st *store) found(c *conn, err error) {
	st.mu.Lock()
	if st.conn != c { // replaced meanwhile
		st.mu.Unlock()
		return
	}
	was := st.away
	st.looked()
	if err != nil {
		if errors.Is(err, context.Canceled) && !errors.Is(err, driver.ErrAway) {
			st.mu.Unlock()
			return // called off: nothing was found
		}
		st.pause = min(max(2*st.pause, firstPause), longestPause)
		st.away, st.retryAt = err, time.Now().Add(st.pause)
		// Perhaps its credentials are no longer those in the Secrets.
		if time.Since(st.readAt) > longestPause {
			st.readAt = time.Time{}
		}
	} else {
		st.away, st.pause = nil, 0
	}
	st.mu.Unlock()
	if err == nil && was != nil {
		st.release()
	}
	if untried := errors.Is(was, errNotTried); err == nil && was != nil && !untried || err != nil && (was == nil || untried) {
		st.of.woken([]events.Key{events.DataStore(st.name)}, loop.Wake{Kind: wakeDataStore}) // its verdict is another
	}
}

// isAway reports whether the database is known to be away.
func (st *store) isAway() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.away != nil
}

// verdict is what is known of a DataStore.
type verdict struct {
	ready           bool
	reason, message string
}

// judge turns what load and look found into a verdict.
func judge(opened, looked error) verdict {
	var bad *driver.ConfigError
	var no *unsupported
	switch {
	case errors.As(opened, &no):
		return verdict{false, reason.DriverNotSupported, no.Error()}
	case errors.As(opened, &bad) && bad.Part == driver.PartBasicAuth:
		return verdict{false, v1alpha1.DataStoreReasonBasicAuthFailed, bad.Error()}
	case errors.As(opened, &bad):
		return verdict{false, v1alpha1.DataStoreReasonTLSConfigFailed, bad.Error()}
	case looked != nil:
		return verdict{false, reason.Unreachable, looked.Error()}
	}
	return verdict{true, v1alpha1.DataStoreReasonValid, "the DataStore answers and all references are valid"}
}
