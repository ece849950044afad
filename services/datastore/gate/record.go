package gate

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// How often the records are looked at: now and then, and often while something is about to happen, or may have happened before the
// gate began. A kine tells of changes by watches a second late.
const (
	lookSeldom = 500 * time.Millisecond
	lookOften  = 5 * time.Millisecond
	lookFirst  = 10 * time.Second
	// lookTimeout bounds each look.
	lookTimeout = 2 * time.Second
)

// begin finds out where the data are. Where To doesn't answer, that From takes a write shows that they are there.
func (g *Gate) begin(ctx context.Context) error {
	for {
		moved, known := g.lookAtOther(ctx)
		if moved || known {
			return nil
		}
		err := g.say(ctx, g.from, driver.Move{Phase: driver.MoveOpen})
		if err == nil {
			return nil
		}
		g.cfg.Log.Warn("neither store says where the data are; asking again", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookSeldom):
		}
	}
}

// lookAtOther turns to the other store once its record says so. known is whether it answered.
func (g *Gate) lookAtOther(ctx context.Context) (moved, known bool) {
	m, revision, err := g.record(ctx, g.to)
	if err != nil {
		return false, false
	}
	switch {
	case m.ID != g.cfg.Move:
	case m.Phase == driver.MoveThawed:
		g.turn(revision)
		g.release(m.Attempt)
		return true, true
	case m.Phase == driver.MoveDone:
		g.holdUntilThawed()
		g.turn(revision)
		return true, true
	}
	return false, true
}

// holdUntilThawed has writes wait in a gate that finds the data moved without having held any.
func (g *Gate) holdUntilThawed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil && !g.moved {
		g.held = make(chan struct{})
		time.AfterFunc(patience, func() { g.release(g.attempt) })
	}
}

// follow does what the records say until the data have moved and writes go on, or ctx ends.
func (g *Gate) follow(ctx context.Context) {
	began, said := time.Now(), driver.Move{}
	for ctx.Err() == nil {
		wait := lookSeldom
		if time.Since(began) < lookFirst {
			wait /= 5
		}
		moved, known := g.lookAtOther(ctx)
		if known {
			g.setDoubt(false)
		}
		if moved {
			if g.thawed() {
				return
			}
			if now := (driver.Move{Phase: driver.MoveDone}); said != now && g.say(ctx, g.to, now) == nil {
				said = now
			}
			wait = lookOften
		} else if m, _, err := g.record(ctx, g.from); err == nil && m.ID == g.cfg.Move {
			now := g.obey(ctx, m)
			if !known {
				g.setDoubt(m.Phase == driver.MoveHeld && now.Phase != driver.MoveHeld)
			}
			if now.Phase != driver.MoveOpen {
				wait = lookOften
			}
			if said != now && g.say(ctx, g.from, now) == nil {
				said = now
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// obey does what the record in From says and returns what the gate has to say of itself.
func (g *Gate) obey(ctx context.Context, m driver.Move) driver.Move {
	g.mu.Lock()
	expired := g.expired
	g.mu.Unlock()
	switch {
	case m.Phase == driver.MoveHeld && m.Attempt > expired:
		if g.hold(ctx, m.Attempt) {
			return driver.Move{Phase: driver.MoveHeld, Attempt: m.Attempt}
		}
	case m.Phase != driver.MoveHeld:
		g.release(m.Attempt)
	}
	if m.Phase == driver.MoveOpen {
		return driver.Move{Phase: driver.MoveOpen}
	}
	return driver.Move{Phase: driver.MoveSoon, Attempt: m.Attempt}
}

// thawed reports whether writes go on in the other store.
func (g *Gate) thawed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moved && g.held == nil
}

// record reads that of a store.
func (g *Gate) record(ctx context.Context, s *store) (driver.Move, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	got, err := s.client.Get(ctx, s.Prefix+driver.MoveKey)
	if err != nil || len(got.Kvs) == 0 {
		return driver.Move{}, 0, err
	}
	return driver.DecodeMove(got.Kvs[0].Value), got.Kvs[0].ModRevision, nil
}

// say writes down how the gate stands.
func (g *Gate) say(ctx context.Context, s *store, m driver.Move) error {
	m.ID = g.cfg.Move
	return setRecord(ctx, s, driver.GateKey(g.cfg.Name), m.Encode())
}

// setRecord writes a record, whatever it is.
func setRecord(ctx context.Context, s *store, key string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	key = s.Prefix + key
	for revision := int64(0); ; {
		done, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, string(value))).Else(clientv3.OpGet(key)).Commit()
		if err != nil || done.Succeeded {
			return err
		}
		revision = 0
		if kvs := done.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
			revision = kvs[0].ModRevision
		}
	}
}
