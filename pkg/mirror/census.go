package mirror

// When it is believed that a remote object is gone though its finalizer should have held it. An API server says "not found" also when it was
// restored from a backup, when it is another one, when a kind was defined anew.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// errUnsure means that an object isn't there when it is asked for, and is among all there are, or was until a moment ago.
var errUnsure = errors.New("the server contradicts itself")

// fresh is for how long a complete list is good: many may ask for one at the same time.
const fresh = 5 * time.Second

// census is the last complete list of a kind. The zero value is ready to use; it is safe for concurrent use.
type census struct {
	mu  sync.Mutex
	at  time.Time // when it was begun
	all map[item]types.UID
}

// take lists all remote objects of a kind, as they are in the server's storage now.
func (m *mirror) take(ctx context.Context, kind int) (map[item]types.UID, error) {
	c := &m.census[kind]
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < fresh {
		return c.all, nil
	}
	began, all := time.Now(), map[item]types.UID{}
	err := kube.Each(ctx, m.Remote, m.Kinds[kind].Resource, "", func(o *struct {
		Metadata struct {
			Namespace, Name string
			UID             types.UID
		}
	}) {
		if i, ok := m.ofRemote(kind, o.Metadata.Namespace, o.Metadata.Name); ok {
			all[i] = o.Metadata.UID
		}
	})
	if err != nil {
		return nil, of(remote, err)
	}
	c.at, c.all = began, all
	return all, nil
}

// verdict is whether a remote object is believed to be gone; why says what that waits for.
type verdict struct {
	gone, graceOver bool
	why             string
}

// state of a pair of which the remote object isn't believed to be gone: s, or [Held] once the time for that is over.
func (v verdict) state(s State) State {
	if v.graceOver {
		return Held
	}
	return s
}

// gone judges whether the remote object is gone that a local one was made from. If it isn't believed, the pair is looked at again when it may be.
func (l *look) gone(ctx context.Context, from types.UID) (verdict, error) {
	now := time.Now()
	since := l.index.missing(l.item, now)
	switch is := l.sideState(remote); {
	case is.away: // and nobody has said yet that it is back
		since = now
	case is.back.After(since):
		since = is.back
	}
	if rest := since.Add(l.Grace).Sub(now); rest > 0 {
		l.queue.AddAfter(l.item, rest)
		return verdict{why: fmt.Sprintf("it is deleted at %s if nothing changes", now.Add(rest).UTC().Format(time.RFC3339))}, nil
	}
	all, err := l.take(ctx, l.item.kind)
	if err != nil {
		return verdict{}, err
	}
	if all[l.item] == from {
		return verdict{}, fmt.Errorf("remote: %s %s/%s: %w", l.r.Kind, l.item.Namespace, l.remoteName(l.item), errUnsure)
	}
	why, forGood := l.index.unbelievable(l.item, from, all, l.MaxMissing)
	switch {
	case forGood:
		why = "it isn't believed, and it stays until somebody deletes it there or has it taken over: " + why
	case why != "":
		l.queue.AddAfter(l.item, l.Grace)
	}
	return verdict{gone: why == "", graceOver: true, why: why}, nil
}

// unbelievable says why it isn't believed that the remote object is gone that a local one was made from, empty if it is; share is the most that
// may be missing of a kind. What wasn't believed once isn't later either, when fewer are missing, until it is found: for good.
func (x *index) unbelievable(i item, from types.UID, all map[item]types.UID, share float64) (why string, forGood bool) {
	k, unlock := x.of(i.kind)
	defer unlock()
	if why, is := k.doubted[i]; is {
		return why, true
	}
	missing := 0
	for i, from := range k.made {
		if all[i] != from {
			missing++
		}
	}
	switch {
	case !k.localListed || k.made[i] != from:
		return "the local objects aren't all known yet", false
	case k.followed[i] != from:
		why = "it was missing already when this process began to look"
	case len(all) == 0:
		why = "the remote has none at all"
	case missing > 1 && float64(missing) > share*float64(len(k.made)):
		why = fmt.Sprintf("%d of %d were missing at once", missing, len(k.made))
	default:
		return "", false
	}
	set(&k.doubted, i, why)
	return why, true
}

// deleteLocal deletes the very local object that was looked at.
func (l *look) deleteLocal(ctx context.Context) error {
	uid, version := l.local.GetUID(), l.local.GetResourceVersion()
	found, err := l.Local.Delete(ctx, l.r, l.local.GetNamespace(), l.local.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &l.Propagation, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	l.changed("deletion", found)
	return of(local, err)
}
