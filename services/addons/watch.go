package addons

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Event is a change of an object this service has applied.
type Event struct {
	Ref Ref
	// Type is ADDED, MODIFIED or DELETED. An object that has lost our label counts as deleted.
	Type watch.EventType
	// Version as Apply returns it: if equal, the change was our own; of a deleted object, "".
	Version string
}

// unwatched reports whether an object is put right by the daily look alone: the policy of keptEndpoints and its binding, for which two
// more kinds would be watched in each tenant (31 KB), and by whose loss a tenant's administrator harms nobody else.
func unwatched(ref string) bool { return strings.HasSuffix(ref, "//"+name.KeptEndpoints) }

// Watch calls drift for each change of an object named in known, from the state in which known describes it: what
// happened before the call, or while the tenant's API was away, is told as soon as it answers. Known is what Apply
// returned; an object it doesn't name is none of ours, so start Watch anew when Apply has a new one. It isn't changed.
//
// Events of our own writes are told as well; their version is that of Apply. The status of Deployments and DaemonSets is
// no change, and neither is an object that became what it was. Calls to drift don't overlap and must return soon.
//
// Watch goes on through restarts of the tenant's API until ctx ends, and returns its error; or one of the server that
// will not pass: it doesn't know our certificate, or we don't know its.
//
// count is called when the status of the konnectivity agents' workload may be another, drift or not; nil for nobody.
func (c *Cluster) Watch(ctx context.Context, known map[string]string, drift func(Event), count func()) error {
	ctx, end := context.WithCancelCause(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer end(nil)

	var mu sync.Mutex
	tell := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			drift(e)
		}
	}
	known = maps.Clone(known)
	maps.DeleteFunc(known, func(ref, _ string) bool { return unwatched(ref) })
	for _, k := range kinds {
		d := &drifting{kind: k, known: map[string]string{}, tell: tell, count: count}
		for ref, version := range known {
			if strings.HasPrefix(ref, k.Kind+"/") {
				d.known[ref] = version
			}
		}
		if len(d.known) == 0 {
			continue
		}
		ours := func(namespace, name string) bool { _, is := known[Ref{k.Kind, namespace, name}.String()]; return is }
		watches.Go(func() {
			for {
				d.begin()
				err := c.kube.WatchFiltered(ctx, k.Resource, LabelProject+"="+Project, ours, d.changed, d.listed)
				if err != nil && !apierrors.IsForbidden(err) {
					end(err)
				}
				if !sleep(ctx, forbiddenPause) {
					return
				}
			}
		})
	}
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

// drifting compares objects of a kind with what they should be.
type drifting struct {
	kind  kind
	known map[string]string // version by Ref.String(), of our objects only; "" if it isn't there
	// missing are those that the first list has yet to show; nil after it.
	missing map[string]bool
	tell    func(Event)
	count   func()
}

// begin takes all objects for missing until they are listed.
func (d *drifting) begin() {
	d.missing = make(map[string]bool, len(d.known))
	for ref := range d.known {
		d.missing[ref] = true
	}
}

// changed tells of the object if it isn't what it was.
func (d *drifting) changed(change kube.Change) {
	e := Event{Ref: Ref{d.kind.Kind, change.Object.Namespace, change.Object.Name}, Type: change.Type}
	delete(d.missing, e.Ref.String())
	d.note(e, change.Object)
	if d.kind.runs && e.Ref.Name == name.KonnectivityAgent && d.count != nil {
		d.count()
	}
}

// listed tells of what went before the watch.
func (d *drifting) listed() {
	for ref := range d.missing {
		parts := strings.SplitN(ref, "/", 3)
		d.note(Event{Ref: Ref{parts[0], parts[1], parts[2]}, Type: watch.Deleted}, nil)
	}
	d.missing = nil
}

func (d *drifting) note(e Event, o *metav1.PartialObjectMetadata) {
	was := d.known[e.Ref.String()]
	if e.Type != watch.Deleted {
		e.Type, e.Version = watch.Modified, d.kind.version(o)
		if was == "" {
			e.Type = watch.Added
		}
	}
	if was == e.Version {
		return
	}
	d.known[e.Ref.String()] = e.Version
	d.tell(e)
}
