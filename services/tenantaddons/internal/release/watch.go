package release

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

const (
	// forbiddenPause is how long a watch that the tenant's API refuses is left alone: a server that has just started has yet to make its own
	// roles.
	forbiddenPause = 5 * time.Second
	// lookPause is between two looks at objects that have changed: a rollout changes its Deployment often.
	lookPause = 500 * time.Millisecond
)

// Event is something that a [Cluster.Watch] has seen.
type Event struct {
	// Addon is that of the release.
	Addon types.NamespacedName
	// Drift says that objects aren't as the release has them: [Installed.Drift] names them. Else [Installed.Health] is another.
	Drift bool
}

// Watch follows the objects of releases until ctx ends, and returns its error; or one of the server that will not pass: it doesn't know our certificate,
// or we don't know its. What happened before, or while the API was away, is told as soon as it answers. Start it anew when a release
// was installed. Calls to told don't overlap and must return soon.
//
// There is one watch for each kind, of metadata; objects whose health is of interest are read when they change. What was repaired meanwhile
// ([Cluster.Repair]) is no drift.
func (c *Cluster) Watch(ctx context.Context, releases []*Installed, told func(Event)) error {
	ctx, end := context.WithCancelCause(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer end(nil)
	var telling sync.Mutex
	looker := &looker{cluster: c, changed: make(chan struct{}, 1), objects: map[*Installed]map[Ref]*kube.Resource{}}
	tell := func(e Event) {
		telling.Lock()
		defer telling.Unlock()
		if ctx.Err() == nil {
			told(e)
		}
	}
	looker.tell = tell
	for kind, of := range byKind(releases) {
		w := &kindWatch{resource: kind, of: of, tell: tell, looker: looker}
		watches.Go(func() {
			for {
				w.begin()
				err := c.kube.WatchFiltered(ctx, kind, name.LabelTenantAddon, w.wanted, w.changed, w.listed)
				if err != nil && !apierrors.IsForbidden(err) {
					end(err)
				}
				if !sleep(ctx, forbiddenPause) {
					return
				}
			}
		})
	}
	watches.Go(func() { looker.run(ctx) })
	<-ctx.Done()
	return context.Cause(ctx)
}

// sleep waits for d and up to half as much again; it returns false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d + rand.N(d/2+1)) //nolint:gosec // jitter
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// byKind are the releases that have objects of a kind, by those objects.
func byKind(releases []*Installed) map[kube.Resource]map[types.NamespacedName]*Installed {
	all := map[kube.Resource]map[types.NamespacedName]*Installed{}
	for _, in := range releases {
		for _, o := range in.objects {
			if all[*o.resource] == nil {
				all[*o.resource] = map[types.NamespacedName]*Installed{}
			}
			all[*o.resource][types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = in
		}
	}
	return all
}

// kindWatch compares objects of a kind with what they should be.
type kindWatch struct {
	resource kube.Resource
	of       map[types.NamespacedName]*Installed
	// missing are those that the first list has yet to show; nil after it.
	missing map[types.NamespacedName]bool
	tell    func(Event)
	looker  *looker
}

// begin takes all objects for missing until they are listed.
func (w *kindWatch) begin() {
	w.missing = make(map[types.NamespacedName]bool, len(w.of))
	for at := range w.of {
		w.missing[at] = true
	}
}

func (w *kindWatch) wanted(namespace, object string) bool {
	return w.of[types.NamespacedName{Namespace: namespace, Name: object}] != nil
}

func (w *kindWatch) changed(change kube.Change) {
	at := types.NamespacedName{Namespace: change.Object.Namespace, Name: change.Object.Name}
	delete(w.missing, at)
	if change.Type == watch.Deleted {
		w.gone(at)
		return
	}
	in, ref := w.of[at], w.ref(at)
	if in.see(ref, fieldsOf(change.Object)) {
		w.tell(Event{Addon: in.Addon, Drift: true})
	}
	w.looker.look(in, ref, &w.resource)
}

func (w *kindWatch) ref(at types.NamespacedName) Ref {
	return Ref{w.resource.GroupVersion.Group, w.resource.Kind, at.Namespace, at.Name}
}

// listed tells of what went before the watch.
func (w *kindWatch) listed() {
	for at := range w.missing {
		w.gone(at)
	}
	w.missing = nil
}

func (w *kindWatch) gone(at types.NamespacedName) {
	in := w.of[at]
	if in.miss(w.ref(at)) {
		w.tell(Event{Addon: in.Addon, Drift: true})
	}
	w.looker.look(in, w.ref(at), &w.resource)
}

// looker looks at objects that have changed, to see whether they work.
type looker struct {
	cluster *Cluster
	tell    func(Event)
	changed chan struct{}

	mu sync.Mutex
	// objects are those to be looked at of releases of which something has changed.
	objects map[*Installed]map[Ref]*kube.Resource
}

// look has an object looked at soon.
func (l *looker) look(in *Installed, ref Ref, r *kube.Resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects[in] == nil {
		l.objects[in] = map[Ref]*kube.Resource{}
	}
	if looked(r) {
		l.objects[in][ref] = r
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// run looks until ctx ends.
func (l *looker) run(ctx context.Context) {
	told := map[*Installed]Health{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		l.mu.Lock()
		todo := l.objects
		l.objects = map[*Installed]map[Ref]*kube.Resource{}
		l.mu.Unlock()
		for in, objects := range todo {
			for ref, r := range objects {
				l.lookAt(ctx, in, ref, r)
			}
			if now := in.Health(); now != told[in] {
				told[in] = now
				l.tell(Event{Addon: in.Addon})
			}
		}
		if !sleep(ctx, lookPause) {
			return
		}
	}
}

// lookAt notes whether an object works.
func (l *looker) lookAt(ctx context.Context, in *Installed, ref Ref, r *kube.Resource) {
	u, err := l.cluster.get(ctx, r, ref.Namespace, ref.Name)
	switch {
	case err == nil:
		in.works(ref, healthOf(u))
	case apierrors.IsNotFound(err):
		in.works(ref, missing)
	default:
		l.look(in, ref, r) // again
	}
}
