package data

// A mover works on the move of one tenant's data, beside the tenant's turns, which tell it what to do next and write down how far it is
// (migrate.go). It ends when it is done, when it is told to, or when this replica loses the tenant's partition; whoever has the
// partition then begins another one, which goes on from the records in the stores.

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/move"
)

// mover is one that runs, or has ended.
type mover struct {
	move   state.Move
	from   account.Side
	to     account.Side
	wake   func()
	cancel context.CancelFunc
	done   chan struct{}
	// gates gets the number of gates when it is to go over.
	gates chan int

	mu   sync.Mutex
	at   moverAt
	pace pace
	told time.Time // when it was told last how far copying is
}

// moverAt is how far a mover is.
type moverAt struct {
	phase       string // state.MoveCopying, …Following, …GoingOver; never state.MoveDone, which is noted together with where the data are
	keys, bytes int64
	held        time.Duration
	// apart says that the two stores are not one.
	apart bool
	// why is why it didn't go over the last time; err is what it has ended with.
	why, err error
	ended    bool
}

// movers are those of this replica. It is safe for concurrent use.
type movers struct {
	mu      sync.Mutex
	all     map[events.Key]*mover
	waiting map[events.Key]struct{} // who waits for one to end
	wake    func(events.Key)
	running sync.WaitGroup
}

// get is a tenant's mover, nil without one.
func (m *movers) get(key events.Key) *mover {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[key]
}

// room reports whether a mover between two DataStores may start, and notes the tenant to be woken when one has ended. Those that only wait
// for pods don't count; nor does a move that was going over, for its tenant's writes may be held.
func (m *movers) room(key events.Key, v *state.Move, from, to string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	running, on := 0, 0
	for _, other := range m.all {
		if at := other.now(); at.ended || at.phase == state.MoveFollowing {
			continue
		}
		running++
		if other.on(from) || other.on(to) {
			on++
		}
	}
	if v.Phase != state.MoveGoingOver && (running >= maxMovers || on >= maxMoversOn) {
		m.waiting[key] = struct{}{}
		return false
	}
	return true
}

// start starts a mover. ctx says whether this replica may write; that it ends, as a turn's does, ends nothing.
func (m *movers) start(ctx context.Context, key events.Key, v state.Move, from, to account.Side) *mover {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was := m.all[key]; was != nil {
		return was
	}
	moving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	one := &mover{
		move: v, from: from, to: to, cancel: cancel, done: make(chan struct{}),
		gates: make(chan int, 1), wake: func() { m.wake(key) }, at: moverAt{phase: v.Phase},
	}
	m.all[key] = one
	m.running.Go(func() {
		defer close(one.done)
		defer cancel()
		watching := make(chan struct{})
		go func() { defer close(watching); watchFence(moving, one.cancel) }()
		err := one.run(moving)
		cancel()
		<-watching
		one.set(func(at *moverAt) { at.err, at.ended = err, true })
		if fence.Check(ctx) != nil { // it is another replica's
			m.mu.Lock()
			if m.all[key] == one {
				delete(m.all, key)
			}
			m.mu.Unlock()
		}
		one.wake()
		m.wakeWaiting()
	})
	return one
}

// wakeWaiting wakes the tenants that wait for a mover.
func (m *movers) wakeWaiting() {
	m.mu.Lock()
	waiting := m.waiting
	m.waiting = map[events.Key]struct{}{}
	m.mu.Unlock()
	for key := range waiting {
		m.wake(key)
	}
}

// end ends a tenant's mover, waits until it has, and forgets it.
func (m *movers) end(key events.Key) {
	m.mu.Lock()
	one := m.all[key]
	delete(m.all, key)
	m.mu.Unlock()
	if one != nil {
		one.cancel()
		<-one.done
	}
}

// stop ends all.
func (m *movers) stop() {
	m.mu.Lock()
	for _, one := range m.all {
		one.cancel()
	}
	m.mu.Unlock()
	m.running.Wait()
}

func (o *mover) on(store string) bool { return o.from.Store.Name == store || o.to.Store.Name == store }

// now is how far it is.
func (o *mover) now() moverAt {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at
}

func (o *mover) set(change func(*moverAt)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.at)
}

// run moves the data. nil means that they have moved.
func (o *mover) run(ctx context.Context) error {
	var err error
	// What one of the databases says tells nothing of the other one, so neither store hears of it: they find out by themselves.
	opened := o.from.Store.Do(ctx, func(from driver.Driver) error {
		return o.to.Store.Do(ctx, func(to driver.Driver) error {
			err = o.between(ctx, from, to)
			return nil
		})
	})
	return errors.Join(opened, err)
}

// errNoAccess means that a driver has no access to its tenants' data.
var errNoAccess = errors.New("the driver can't read and write what its tenants keep")

// between moves the data from one database to another. Where the revisions of the other one turn out to be too low when it is to go over,
// it begins anew, further above.
func (o *mover) between(ctx context.Context, from, to driver.Driver) error {
	var err error
	fromAccess, ok1 := from.(driver.DataAccess)
	toAccess, ok2 := to.(driver.DataAccess)
	if !ok1 || !ok2 {
		return errNoAccess
	}
	above := int64(margin)
	for range fromAnew {
		err = o.into(ctx, from, fromAccess, toAccess, above)
		switch {
		case errors.Is(err, move.ErrBehind):
			above *= 10
		case !errors.Is(err, driver.ErrCompacted): // what was to be brought over is gone
			return err
		}
		o.set(func(at *moverAt) { at.phase, at.why = state.MoveCopying, err })
		o.wake()
	}
	return err
}

// into moves the data, to where revisions begin so much above.
func (o *mover) into(ctx context.Context, from driver.Driver, fromAccess, toAccess driver.DataAccess, above int64) (err error) {
	m := &move.Move{
		ID: o.move.ID, What: o.what(), Seal: o.provision(from, true), Unseal: o.provision(from, false),
		Copied: func(c driver.Change) {
			o.set(func(at *moverAt) { at.keys, at.bytes = at.keys+1, at.bytes+int64(len(c.Key)+len(c.Value)) })
		},
	}
	select {
	case <-o.gates: // it was told so of what is begun anew
	default:
	}
	o.set(func(at *moverAt) { at.keys, at.bytes = 0, 0 })
	if m.To, err = o.open(ctx, toAccess, o.to); err != nil {
		return err
	}
	defer func() { _ = m.To.Close() }()
	if err = m.Take(ctx); errors.Is(err, move.ErrMoved) {
		return m.Finish(ctx, math.MaxInt)
	}
	if err != nil {
		return err
	}
	// Somebody who is gone may have sealed it.
	if err := m.Unseal(ctx); err != nil {
		return err
	}
	if m.From, err = o.open(ctx, fromAccess, o.from); err != nil {
		return err
	}
	defer m.From.Close()
	if err := m.Begin(ctx); err != nil {
		return err
	}
	if err := o.somethingHere(ctx, m); err != nil {
		return err
	}
	o.set(func(at *moverAt) { at.apart = true }) // what is there may be dropped if the move is undone
	if err := o.makeReady(ctx, m, toAccess, above); err != nil {
		return err
	}
	o.enter(state.MoveCopying)
	defer m.Close()
	if err := m.Copy(ctx); err != nil {
		return err
	}
	o.enter(state.MoveFollowing)
	return o.follow(ctx, m)
}

// open opens what of an account's data moves.
func (o *mover) open(ctx context.Context, accesses driver.DataAccess, at account.Side) (driver.Data, error) {
	data, err := accesses.Data(ctx, at.Account, at.Access)
	if err == nil && len(o.move.Resources) > 0 {
		data = move.Part(data, hasOf(o.move.Resources))
	}
	return data, err
}

// errThereAlready means that what is to move is in the other store, and nothing of it in the one that it is to come from.
var errThereAlready = errors.New("the other DataStore has such objects already, and the one that they are to come from has none: which of both is right is not known")

// somethingHere keeps resources from being replaced by nothing: where they are was forgotten then, or told wrong.
func (o *mover) somethingHere(ctx context.Context, m *move.Move) error {
	if len(o.move.Resources) == 0 || o.move.Apart || o.now().apart { // else what is there is this move's
		return nil
	}
	here, err := isEmpty(ctx, m.From)
	if err != nil || !here {
		return err
	}
	there, err := isEmpty(ctx, m.To)
	if err == nil && !there {
		err = errThereAlready
	}
	return err
}

// makeReady empties the other store and raises its revisions. What it holds is none of this move's.
func (o *mover) makeReady(ctx context.Context, m *move.Move, to driver.DataAccess, above int64) error {
	// Nobody may have it open while its revisions are raised.
	if err := errors.Join(m.To.Clear(ctx), m.To.Close()); err != nil {
		return err
	}
	now, err := m.From.Revision(ctx)
	if err != nil {
		return err
	}
	if err := to.Raise(ctx, o.to.Account, o.to.Access, now+above); err != nil {
		return err
	}
	if m.To, err = o.open(ctx, to, o.to); err != nil {
		return err
	}
	// Its records may have gone with what it held.
	if err := m.Take(ctx); err != nil {
		return err
	}
	return m.Begin(ctx)
}

// what says what moves from where: a record of a move of the same says so of this one.
func (o *mover) what() string {
	return events.ID(append([]string{o.from.Store.Name}, o.move.Resources...)...)
}

// provision returns what makes the former account such that its tenant may write, or not.
func (o *mover) provision(d driver.Driver, readOnly bool) func(context.Context) error {
	return func(ctx context.Context) error {
		a := o.from.Account
		a.ReadOnly, a.ReadOnlyOf = readOnly, strings.Join(account.PrefixesOf(o.move.Resources...), ",")
		_, err := d.Provision(ctx, a)
		return err
	}
}

// follow brings changes over until it is told to go over, and goes over.
func (o *mover) follow(ctx context.Context, m *move.Move) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	pause := followEvery
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := m.Follow(ctx); err != nil {
				return err
			}
		case gates := <-o.gates:
			if o.now().phase != state.MoveGoingOver {
				continue // nobody has noted it
			}
			held, err := m.GoOver(ctx, gates)
			switch {
			case err == nil, errors.Is(err, move.ErrMoved):
				o.set(func(at *moverAt) { at.held = held })
				return nil
			case !errors.Is(err, move.ErrGates):
				return err
			}
			select { // writes go on for a while before they are held again
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
			pause = min(2*pause, longestHoldPause)
			o.set(func(at *moverAt) { at.phase, at.why = state.MoveFollowing, err })
			o.wake()
		}
	}
}

// goOver has it go over, unless it was told to already.
func (o *mover) goOver(gates int) {
	o.set(func(at *moverAt) { at.phase, at.why = state.MoveGoingOver, nil })
	select {
	case o.gates <- gates:
	default:
	}
}

// enter notes a phase and has it written down.
func (o *mover) enter(phase string) {
	o.set(func(at *moverAt) { at.phase = phase })
	o.wake()
}
