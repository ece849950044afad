package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// conn is an open driver; it is closed when replaced and no longer used.
type conn struct {
	driver.Driver
	sum     string // of its whole configuration
	tenants string // Kind.Fingerprint
	uses    sync.WaitGroup
}

// Driver is the open one, nil without one.
func (st *Store) Driver() driver.Driver {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.conn == nil {
		return nil
	}
	return st.conn.Driver
}

// Fingerprint returns the fingerprint of the open driver's configuration ([Kind.Fingerprint]), empty without a driver.
func (st *Store) Fingerprint() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.conn == nil {
		return ""
	}
	return st.conn.tenants
}

// Invalidate makes the next Load read again.
func (st *Store) Invalidate() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.readAt = time.Time{}
	st.invalidated++
}

// Load returns the DataStore as read within the last moments; opened tells whether its driver could be made. Errors of
// the management API are returned, what is wrong with the DataStore itself is opened: ErrNoDataStore,
// *[driver.ConfigError], *ForeignSecretError, *UnsupportedError.
func (st *Store) Load(ctx context.Context) (object *v1alpha1.DataStore, opened, err error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	st.mu.Lock()
	paused, _, _ := name.Paused(st.annotations, time.Now())
	known := time.Since(st.readAt) < readAgainAfter || paused && st.object != nil
	invalidated := st.invalidated
	object, opened = st.object, st.err
	st.mu.Unlock()
	if known {
		return object, opened, nil
	}
	object, cfg, opened := st.of.read(ctx, st.Name)
	var bad *driver.ConfigError
	var foreign *ForeignSecretError
	if opened != nil && !errors.Is(opened, ErrNoDataStore) && !errors.As(opened, &bad) && !errors.As(opened, &foreign) {
		return nil, nil, opened
	}
	st.of.onRead(st.Name, object)
	var next *conn
	if opened == nil {
		next, opened = st.connect(object, cfg)
	}
	st.of.WakeAll(st.replace(object, opened, next, invalidated), loop.Wake{Kind: WakeDataStore})
	return object, opened, nil
}

// connect returns the connection there is if it is that of this object and configuration, else a new one, which has connected to
// nothing yet.
func (st *Store) connect(object *v1alpha1.DataStore, cfg driver.Config) (*conn, error) {
	sum := cfg.Checksum()
	st.mu.Lock()
	have := st.conn
	same := have != nil && have.sum == sum && st.object.UID == object.UID
	st.mu.Unlock()
	if same {
		return have, nil
	}
	d, err := open(st.of.drivers, object, cfg)
	if err != nil {
		return nil, err
	}
	return &conn{Driver: d, sum: sum, tenants: st.of.drivers[object.Spec.Driver].Fingerprint(cfg)}, nil
}

// replace puts what was read in the place of what was there, and returns whom that concerns.
func (st *Store) replace(object *v1alpha1.DataStore, opened error, next *conn, invalidated int) []events.Key {
	st.mu.Lock()
	defer st.mu.Unlock()
	old := st.conn
	changed := old != next || fmt.Sprint(st.err) != fmt.Sprint(opened)
	if st.object == nil && st.err == nil && errors.Is(opened, ErrNoDataStore) {
		// A name of nothing. Waking for it would make a store for the name again, which reads again, and so on.
		changed = false
	}
	st.object, st.err, st.readAt = object, opened, time.Now()
	switch {
	case st.invalidated != invalidated:
		st.readAt = time.Time{}
	case opened != nil:
		// Mended Secrets are no event; read again soon.
		st.readAt = st.readAt.Add(longestPause - readAgainAfter)
	}
	if old != next {
		// Whoever uses the new one first finds out whether it answers.
		st.conn, st.away, st.pause = next, errNotTried, 0
		st.endPing()
		if old != nil {
			go func() { old.uses.Wait(); _ = old.Close() }()
		}
	}
	if !changed {
		return nil
	}
	keys := []events.Key{events.DataStore(st.Name)}
	for key := range st.tenants {
		// Another authority or endpoint may mean other Secrets. The first connection concerns those who missed it.
		if _, waits := st.waiting[key]; waits || old != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// Place identifies the database of a store: stores that return the same are one database. It is empty where the account isn't.
func (st *Store) Place(ctx context.Context, account driver.Account) (place string, err error) {
	err = st.Do(ctx, func(d driver.Driver) (err error) {
		if joint, ok := d.(driver.Joint); ok {
			place, err = joint.Place(ctx, account)
		}
		return err
	})
	return place, err
}
