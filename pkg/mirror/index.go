package mirror

// What the watches have shown of both clusters.

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is how a pair of objects is.
type State string

// States.
const (
	// Synced: both objects are as they should be.
	Synced State = "synced"
	// Paused: somebody asked that nothing be done.
	Paused State = "paused"
	// Waiting: for a local object or namespace to be gone.
	Waiting State = "waiting"
	// Foreign: the local object isn't made from the remote one, and is left alone.
	Foreign State = "foreign"
	// Replaced: the local object was made from an earlier remote object of the name; it is deleted after Config.Grace.
	Replaced State = "replaced"
	// Missing: the remote object is gone though it was held by a finalizer; the local one is deleted after Config.Grace.
	Missing State = "missing"
	// Held: as Replaced or Missing, but so many are that none is deleted.
	Held State = "held"
	// NoNamespace: there is no local namespace, and it isn't to be made.
	NoNamespace State = "noNamespace"
	// Failed: the last look ended with an error, and is repeated.
	Failed State = "failed"
)

// states are all, for metrics.
var states = []State{Synced, Paused, Waiting, Foreign, Replaced, Missing, Held, NoNamespace, Failed}

// index is safe for concurrent use.
type index struct {
	mu    sync.Mutex
	kinds []kindIndex
}

// kindIndex is what is known of a kind. The zero value is ready to use.
type kindIndex struct {
	remote map[item]struct{}
	// made has the local objects that were made from the source, with the UID of the remote object.
	made        map[item]types.UID
	localListed bool
	// since is since when a remote object is known to be missing, or replaced.
	since map[item]time.Time
	// followed has the remote objects, by their UIDs, that this process has followed itself. doubted is why it wasn't believed that one is gone.
	followed map[item]types.UID
	doubted  map[item]string
	state    map[item]State
}

func set[V any](m *map[item]V, i item, v V) {
	if *m == nil {
		*m = map[item]V{}
	}
	(*m)[i] = v
}

// of locks and returns what is known of a kind.
func (x *index) of(kind int) (k *kindIndex, unlock func()) {
	x.mu.Lock()
	return &x.kinds[kind], x.mu.Unlock
}

func (x *index) sawRemote(i item, there bool) {
	k, unlock := x.of(i.kind)
	defer unlock()
	if there {
		set(&k.remote, i, struct{}{})
	} else {
		delete(k.remote, i)
	}
}

// sawLocal notes a local object that was made from a remote one with the UID, empty for one that wasn't or is gone.
func (x *index) sawLocal(i item, from types.UID) {
	k, unlock := x.of(i.kind)
	defer unlock()
	if from != "" {
		set(&k.made, i, from)
	} else {
		delete(k.made, i)
	}
}

// listedLocal notes that all local objects are known, and returns those that waited for that.
func (x *index) listedLocal(kind int) []item {
	k, unlock := x.of(kind)
	defer unlock()
	k.localListed = true
	return slices.Collect(maps.Keys(k.since))
}

// all are all pairs that are known.
func (x *index) all() []item {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[item]struct{}{}
	for _, k := range x.kinds {
		maps.Copy(all, k.remote)
		for i := range k.made {
			all[i] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(all))
}

// in are the pairs of a remote namespace, but for one.
func (x *index) in(namespace string, but item) (all []item) {
	for _, i := range x.all() {
		if i.Namespace == namespace && i != but {
			all = append(all, i)
		}
	}
	return all
}

// missing notes that a remote object is missing, and returns since when.
func (x *index) missing(i item, now time.Time) time.Time {
	k, unlock := x.of(i.kind)
	defer unlock()
	if _, known := k.since[i]; !known {
		set(&k.since, i, now)
	}
	return k.since[i]
}

// found notes that a remote object isn't missing, or nothing is left of it.
func (x *index) found(i item) {
	k, unlock := x.of(i.kind)
	defer unlock()
	delete(k.since, i)
	delete(k.doubted, i)
}

// follows notes that a remote object is followed.
func (x *index) follows(i item, uid types.UID) {
	k, unlock := x.of(i.kind)
	defer unlock()
	set(&k.followed, i, uid)
}

// is notes the state of a pair, empty for one of which nothing is left, and reports whether it is another than before.
func (x *index) is(i item, s State) (news bool) {
	k, unlock := x.of(i.kind)
	defer unlock()
	news = k.state[i] != s
	if s == "" {
		delete(k.state, i)
		delete(k.followed, i)
	} else {
		set(&k.state, i, s)
	}
	return news
}

// count returns how many pairs of a kind are in each state.
func (x *index) count(kind int) map[State]int {
	k, unlock := x.of(kind)
	defer unlock()
	n := map[State]int{}
	for _, s := range k.state {
		n[s]++
	}
	return n
}
