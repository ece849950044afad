package store

// Each store is a circuit breaker: while its database is known to be away, one caller at a time pings it, and all others get the
// error at once, so that an outage of one database delays no tenant on another.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// errNotTried is the state of a connection nobody has used yet.
var errNotTried = errors.New("not tried yet")

// Do calls f with the driver, unless the database is known to be away. An outage, before or in f, is *[intent.Unavailable];
// other errors are f's. [fence.ErrFenced] when this replica may not work under ctx any more.
func (st *Store) Do(ctx context.Context, f func(driver.Driver) error) error {
	return st.use(ctx, false, f)
}

// Ping asks the database whether it is there, also when it was a moment ago. Errors are [Store.Do]'s.
func (st *Store) Ping(ctx context.Context) error {
	return st.use(ctx, true, func(driver.Driver) error { return nil })
}

// Warning is what the driver finds that should be put right although the database can be used; empty when that is nothing, or the
// database doesn't answer.
func (st *Store) Warning(ctx context.Context) (why, message string) {
	err := st.use(ctx, false, func(d driver.Driver) error {
		if w, warns := d.(driver.Warner); warns {
			why, message = w.Warning(ctx)
		}
		return nil
	})
	if err != nil { // the next check says so
		return "", ""
	}
	return why, message
}

func (st *Store) use(ctx context.Context, ping bool, f func(driver.Driver) error) error {
	if err := fence.Check(ctx); err != nil {
		return err
	}
	c, first, err := st.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.uses.Done()
	if ping || first {
		began := time.Now()
		err := c.Check(ctx)
		st.noteLatency(err, time.Since(began))
		st.noteAnswer(c, err)
		if err != nil {
			return st.unavailable(ctx, err)
		}
	}
	err = f(c.Driver)
	switch {
	case errors.Is(err, driver.ErrFull): // it answers, and what makes room goes on
		if _, warns := c.Driver.(driver.Warner); warns {
			st.warns(reason.EtcdFull)
		}
		return &intent.Unavailable{Err: fmt.Errorf("DataStore %s: %w", st.Name, err)}
	case errors.Is(err, driver.ErrAway):
		st.noteAnswer(c, err)
		return st.unavailable(ctx, err)
	}
	return err
}

// acquire returns the connection for one use; mustPing says that the caller is the one to find out whether the database answers.
// While another does so on a new connection, acquire waits for that. *[intent.Unavailable] while the database is away.
func (st *Store) acquire(ctx context.Context) (c *conn, mustPing bool, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		if c = st.conn; c == nil {
			return nil, false, &intent.Unavailable{Dependency: st.Dependency(), Err: errors.New("no connection")}
		}
		untried, pinging := errors.Is(st.away, errNotTried), st.pinging
		if !untried || pinging == nil {
			break
		}
		st.mu.Unlock()
		select {
		case <-pinging:
			st.mu.Lock()
		case <-ctx.Done():
			st.mu.Lock()
			return nil, false, ctx.Err()
		}
	}
	if away := st.away; away != nil {
		if st.pinging != nil || !errors.Is(away, errNotTried) && time.Now().Before(st.retryAt) {
			return nil, false, &intent.Unavailable{Dependency: st.Dependency(), Err: away}
		}
		mustPing = true
		st.pinging = make(chan struct{})
	}
	c.uses.Add(1)
	return c, mustPing, nil
}

// endPing wakes the callers that wait for the outcome of a ping. st.mu is held.
func (st *Store) endPing() {
	if st.pinging != nil {
		close(st.pinging)
		st.pinging = nil
	}
}

// unavailable gives an outage its intent; a turn that was cancelled is none.
func (st *Store) unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &intent.Unavailable{Dependency: st.Dependency(), Err: err}
}

// noteLatency notes how long a ping took that was answered.
func (st *Store) noteLatency(err error, took time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err == nil {
		st.latency = took
	}
}

// noteAnswer notes whether the database answered over a connection. It wakes those that wait for it when it is back, and the
// DataStore itself when its readiness is another.
func (st *Store) noteAnswer(c *conn, err error) {
	st.mu.Lock()
	if st.conn != c { // replaced meanwhile
		st.mu.Unlock()
		return
	}
	was := st.away
	st.endPing()
	if err != nil {
		if errors.Is(err, context.Canceled) && !errors.Is(err, driver.ErrAway) {
			st.mu.Unlock()
			return // the caller was cancelled: nothing was found out
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
		st.WakeWaiting()
	}
	untried := errors.Is(was, errNotTried)
	if back, lost := err == nil && was != nil && !untried, err != nil && (was == nil || untried); back || lost {
		st.of.WakeAll([]events.Key{events.DataStore(st.Name)}, loop.Wake{Kind: WakeDataStore})
	}
}

// NoteWarning notes what the last check found that should be put right, a reason, or "".
func (st *Store) NoteWarning(why string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.warned = why
}

// warns has the DataStore checked if what should be put right is another than at the last check.
func (st *Store) warns(why string) {
	st.mu.Lock()
	said := st.warned == why
	st.mu.Unlock()
	if !said {
		st.of.WakeAll([]events.Key{events.DataStore(st.Name)}, loop.Wake{Kind: WakeDataStore})
	}
}

// isAway reports whether the database is known to be away.
func (st *Store) isAway() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.away != nil
}
