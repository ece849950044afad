package account

import (
	"context"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// RemoveKept removes what moves have left behind, once its time is up, and reports whether there was such. What is away is tried again
// later.
func (p *Provisioner) RemoveKept(ctx context.Context, t *loop.Turn, own *state.Datastore) (removed bool) {
	now := p.now()
	if own.Move != nil {
		return false // pods may be connected still
	}
	var remain []state.Kept
	for _, k := range own.Kept {
		if now.Before(k.Until) || !p.dropKept(ctx, t, own, k) {
			remain = append(remain, k)
		}
	}
	removed = len(remain) < len(own.Kept)
	own.Kept = remain
	return removed
}

// dropKept removes what is kept in one DataStore, and reports whether there is nothing left to do.
func (p *Provisioner) dropKept(ctx context.Context, t *loop.Turn, own *state.Datastore, k state.Kept) bool {
	used, err := p.StillUsed(ctx, *own, keptAccount(t.UID, k), k.DataStore)
	if err != nil {
		p.log.Warn("whether data of before a move can be removed isn't known now", "tenant", t.Key.String(), "dataStore", k.DataStore, "error", err)
		return false
	}
	if used {
		return true // it is an override's account now, it may be by another name, and goes with that
	}
	_, left, err := p.drop(ctx, t, keptPlace(k), keptAccount(t.UID, k), p.now())
	if err != nil {
		p.log.Warn("data of before a move can't be removed now", "tenant", t.Key.String(), "dataStore", k.DataStore, "error", err)
		return false
	}
	if left != "" {
		p.log.Warn("data of before a move are left", "tenant", t.Key.String(), "dataStore", k.DataStore, "left", left)
	}
	p.stores.Get(k.DataStore).RemoveTenant(t.Key)
	return true
}

func keptPlace(k state.Kept) place {
	return place{dataStore: k.DataStore, driver: v1alpha1.Driver(k.Driver), certain: true, schema: k.Schema, user: k.User}
}

func keptAccount(uid string, k state.Kept) driver.Account {
	return driver.Account{Owner: uid, Schema: k.Schema, User: k.User, Remembered: true}
}

// NextKept is when something that is kept is to be removed, zero for never.
func NextKept(own state.Datastore) (next time.Time) {
	for _, k := range own.Kept {
		if next.IsZero() || k.Until.Before(next) {
			next = k.Until
		}
	}
	return next
}
