package capi

// What every replica keeps in memory: which control planes there are, and what each belongs to.

import (
	"sync"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// belonging is what a control plane belongs to: its Cluster's name, empty for none, and that one's infrastructure, once a turn has read it.
type belonging struct {
	cluster        string
	infrastructure infrastructureRef
}

type infrastructureRef struct {
	resource kube.Resource
	name     string
}

// index is which control planes there are, and what they belong to. It is safe for concurrent use.
type index struct {
	mu sync.Mutex
	of map[events.Key]belonging
	// kinds of infrastructure that are watched; each new one is handed to watchKind, nil while nothing is watched.
	kinds     map[kube.Resource]struct{}
	watchKind func(kube.Resource)
}

// reset forgets everything, for a watch that starts. watchKind, which must not block, begins to watch a kind of infrastructure.
func (x *index) reset(watchKind func(kube.Resource)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of, x.kinds, x.watchKind = map[events.Key]belonging{}, map[kube.Resource]struct{}{}, watchKind
}

// end ends that kinds of infrastructure are watched.
func (x *index) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watchKind = nil
}

// note notes the Cluster of a control plane.
func (x *index) note(key events.Key, cluster string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if is, there := x.of[key]; !there || is.cluster != cluster {
		x.of[key] = belonging{cluster: cluster}
	}
}

// noteInfrastructure notes the infrastructure of a control plane's Cluster, and has its kind watched from now on.
func (x *index) noteInfrastructure(key events.Key, ref infrastructureRef) {
	x.mu.Lock()
	defer x.mu.Unlock()
	is, there := x.of[key]
	if !there || is.infrastructure == ref {
		return
	}
	is.infrastructure = ref
	x.of[key] = is
	if _, watched := x.kinds[ref.resource]; !watched && x.watchKind != nil {
		x.kinds[ref.resource] = struct{}{}
		x.watchKind(ref.resource)
	}
}

// drop forgets a control plane.
func (x *index) drop(key events.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, key)
}

// has reports whether there is a control plane.
func (x *index) has(key events.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, there := x.of[key]
	return there
}

// each calls f for every control plane that wanted accepts.
func (x *index) each(wanted func(events.Key, belonging) bool, f func(events.Key)) {
	x.mu.Lock()
	var keys []events.Key
	for key, is := range x.of {
		if wanted(key, is) {
			keys = append(keys, key)
		}
	}
	x.mu.Unlock()
	for _, key := range keys {
		f(key)
	}
}
