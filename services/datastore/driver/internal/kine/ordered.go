package kine

import (
	"context"
	"time"

	"github.com/k3s-io/kine/pkg/server"
)

// SQL databases count a row when it is written and show it when the write has ended: row 5 may be seen before row 4. kine
// polls for rows and waits for one that is missing, but only for rows that come after its start (settle), and not for
// those with which a watch begins (ordered).

// patience is for how long kine waits for a missing row before it takes it for one that never comes.
const patience = time.Second

// poll has kine poll from now on.
func (k *process) poll(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	r := k.backend.Watch(ctx, server.HealthKey, "", 0)
	go drain(r.Events)
	k.settled = time.Now().Add(patience)
}

// settle waits until all rows up to a revision are there that ever will be.
func (k *process) settle(ctx context.Context, revision int64) error {
	select {
	case <-time.After(time.Until(k.settled)):
	case <-ctx.Done():
		return ctx.Err()
	}
	return synced(ctx, k.backend, revision)
}

// synced waits until kine's polling has come to a revision.
func synced(ctx context.Context, b server.Backend, revision int64) error {
	done := make(chan struct{})
	go func() {
		b.WaitForSyncTo(revision) // can't be called off
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ordered is a kine whose watches miss nothing.
type ordered struct{ server.Backend }

// Watch begins a watch a second time, when all is visible that the first began with, for just that.
func (o ordered) Watch(ctx context.Context, key, end string, revision int64) server.WatchResult {
	live := o.Backend.Watch(ctx, key, end, revision)
	if live.CompactRevision != 0 {
		return live
	}
	events, failed := make(chan []*server.Event), make(chan error, 1)
	go func() {
		defer close(events)
		defer drain(live.Events)
		send := func(batch []*server.Event) bool {
			if len(batch) == 0 {
				return true
			}
			select {
			case events <- batch:
				return true
			case <-ctx.Done():
				return false
			}
		}
		began := false
		for batch := range live.Events {
			if !began && len(batch) > 0 {
				began = true
				var err error
				if batch, err = o.again(ctx, key, end, revision, batch[len(batch)-1].KV.ModRevision); err != nil {
					failed <- err
					return
				}
			}
			if !send(batch) {
				return
			}
		}
		select {
		case err := <-live.Errorc:
			failed <- err
		default:
		}
	}()
	return server.WatchResult{CurrentRevision: live.CurrentRevision, Events: events, Errorc: failed}
}

// again returns what a watch begins with up to a revision.
func (o ordered) again(ctx context.Context, key, end string, revision, last int64) ([]*server.Event, error) {
	if err := synced(ctx, o.Backend, last); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	second := o.Backend.Watch(ctx, key, end, revision)
	defer func() { go drain(second.Events) }()
	if second.CompactRevision != 0 {
		return nil, server.ErrCompacted
	}
	select {
	case batch := <-second.Events:
		for i, e := range batch {
			if e.KV.ModRevision > last {
				return batch[:i], nil
			}
		}
		return batch, nil
	case err := <-second.Errorc:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// drain reads what nobody wants: kine's watches wait for it.
func drain(events <-chan []*server.Event) {
	for range events {
	}
}
