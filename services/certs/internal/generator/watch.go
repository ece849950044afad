// Watching KubeconfigGenerators: all of them are read anew when one changes, and the labels of namespaces while a generator selects
// by them. A change wakes the tenants it concerns in the replica's partitions.

package generator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// WakeKubeconfig is the kind of wake of a tenant whose kubeconfig of a generator (the wake's Object) was seen, or whose generator
// changed.
const WakeKubeconfig = "GeneratedKubeconfig"

// Watch keeps the generators up to date until ctx ends and wakes whom a change concerns in the partitions that are held, and whom
// generators concern in those that are gained.
func (s *Generators) Watch(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	s.mu.Lock()
	s.all, s.namespaces = nil, nil // others' changes may have passed meanwhile
	s.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	objects, namespaces := newSignal(), newSignal()
	group.Go(func() error {
		known := map[string]string{}
		return s.kube.WatchListed(ctx, kube.KubeconfigGenerators, "", "", func(c kube.Change) {
			n, now := c.Object.Name, fingerprint(&c.Object.ObjectMeta)
			if c.Type == watch.Deleted {
				now = ""
			}
			if known[n] == now { // a change of its status
				return
			}
			known[n] = now
			if now == "" {
				delete(known, n)
			}
			objects.set(n)
		}, func() { objects.set("") })
	})
	group.Go(func() error {
		w := &generatorWatch{s: s, held: held, wake: wake, group: group, namespaces: namespaces}
		return w.run(ctx, objects)
	})
	return group.Wait()
}

// signal collects names until somebody takes them.
type signal struct {
	mu    sync.Mutex
	names map[string]bool
	there chan struct{}
}

func newSignal() *signal { return &signal{names: map[string]bool{}, there: make(chan struct{}, 1)} }

func (s *signal) set(n string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[n] = true
	select {
	case s.there <- struct{}{}:
	default:
	}
}

func (s *signal) take() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.names
	s.names = map[string]bool{}
	return names
}

// generatorWatch is one run of a watch.
type generatorWatch struct {
	s             *Generators
	held          *partition.Held
	wake          loop.Waker
	group         *errgroup.Group
	namespaces    *signal // that changed; "" says that all are known
	endNamespaces context.CancelFunc
}

func (w *generatorWatch) run(ctx context.Context, objects *signal) error {
	complete, moves := false, w.held.Follow()
	for {
		resumes, end := w.pauseEnds()
		var concerned concern
		select {
		case <-ctx.Done():
			return nil
		case <-objects.there:
			complete = objects.take()[""] || complete
			if !complete {
				continue // the rest of the first list comes at once
			}
			var err error
			if concerned, err = w.reload(ctx); err != nil {
				return err
			}
		case <-w.namespaces.there:
			concerned = w.relabelled(w.namespaces.take())
		case <-end:
			concerned = concern{generators: []*generator{resumes}}
		case <-moves.Changed():
			m, _ := moves.Next()
			if concerned = w.gained(m.Gained); !complete || len(m.Gained) == 0 {
				continue // what is read once all are known is for the partitions that are held by then
			}
		}
		if err := w.wakeConcerned(ctx, concerned); err != nil {
			return err
		}
	}
}

// pauseEnds returns the generator whose pause is the next to end by itself, and when.
func (w *generatorWatch) pauseEnds() (first *generator, end <-chan time.Time) {
	w.s.mu.RLock()
	defer w.s.mu.RUnlock()
	now, at := w.s.now(), time.Time{}
	for _, g := range w.s.all {
		if _, until := g.paused(now); !until.IsZero() && (first == nil || until.Before(at)) {
			first, at = g, until
		}
	}
	if first == nil {
		return nil, nil
	}
	return first, time.After(at.Sub(now))
}

// concern says whom a change concerns.
type concern struct {
	// generators that changed, as they are and as they were.
	generators []*generator
	// all is set after the first list: then the kubeconfigs of generators that are no more are looked for, too.
	all bool
	// namespaces that changed, nil for all.
	namespaces map[string]bool
	// partitions that it concerns, nil for all that are held.
	partitions []int
}

// gained returns whom all generators concern in partitions.
func (w *generatorWatch) gained(partitions []int) concern {
	w.s.mu.RLock()
	defer w.s.mu.RUnlock()
	return concern{all: true, generators: slices.Collect(maps.Values(w.s.all)), partitions: partitions}
}

// reload reads all generators.
func (w *generatorWatch) reload(ctx context.Context) (concern, error) {
	list := &v1alpha1.KubeconfigGeneratorList{}
	if err := w.patiently(ctx, func() error { return w.s.kube.List(ctx, kube.KubeconfigGenerators, "", "", list) }); err != nil {
		return concern{}, fmt.Errorf("list KubeconfigGenerators: %w", err)
	}
	next, byNamespace := map[string]*generator{}, false
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp == nil {
			g := newGenerator(o)
			next[g.name], byNamespace = g, byNamespace || g.namespaces != nil
			if g.problem != "" {
				w.s.log.Warn("KubeconfigGenerator can't be used", "generator", g.name, "cause", g.problem)
			}
		}
	}
	w.s.mu.Lock()
	before := w.s.all
	w.s.all = next
	for n := range w.s.counts {
		if next[n] == nil {
			delete(w.s.counts, n)
		}
	}
	w.s.mu.Unlock()
	w.watchNamespaces(ctx, byNamespace)
	c := concern{all: before == nil}
	for n, g := range next {
		if was := before[n]; was == nil || was.objectFingerprint != g.objectFingerprint {
			c.generators = append(c.generators, g)
		}
	}
	for n, was := range before {
		if g := next[n]; g == nil || was.objectFingerprint != g.objectFingerprint {
			c.generators = append(c.generators, was)
		}
	}
	return c, nil
}

// watchNamespaces watches namespaces for as long as a generator selects by them.
func (w *generatorWatch) watchNamespaces(ctx context.Context, needed bool) {
	switch {
	case needed == (w.endNamespaces != nil):
		return
	case !needed:
		w.endNamespaces()
		w.endNamespaces = nil
		return
	}
	s := w.s
	ctx, w.endNamespaces = context.WithCancel(ctx)
	all, complete := &namespaces{map[string]labels.Set{}}, false
	w.group.Go(func() error {
		defer func() {
			s.mu.Lock()
			if s.namespaces == all {
				s.namespaces = nil
			}
			s.mu.Unlock()
		}()
		return s.kube.WatchListed(ctx, kube.Namespaces, "", "", func(c kube.Change) {
			n := c.Object.Name
			s.mu.Lock()
			was, known := all.labels[n]
			if c.Type == watch.Deleted {
				delete(all.labels, n)
			} else {
				all.labels[n] = c.Object.Labels
			}
			s.mu.Unlock()
			if complete && (c.Type == watch.Deleted || !known || !maps.Equal(was, labels.Set(c.Object.Labels))) {
				w.namespaces.set(n)
			}
		}, func() {
			if complete {
				return
			}
			complete = true
			s.mu.Lock()
			s.namespaces = all
			s.mu.Unlock()
			w.namespaces.set("")
		})
	})
}

// relabelled returns whom changes of namespaces concern.
func (w *generatorWatch) relabelled(names map[string]bool) concern {
	c := concern{namespaces: names}
	if names[""] {
		c.namespaces = nil
	}
	w.s.mu.RLock()
	defer w.s.mu.RUnlock()
	for _, g := range w.s.all {
		if g.namespaces != nil {
			c.generators = append(c.generators, g)
		}
	}
	return c
}

// manyGenerators is from how many on all generators' Secrets are listed instead of just theirs.
const manyGenerators = 20

// made is a kubeconfig of a generator.
type made struct {
	tenant    events.Key
	generator string
}

// wakeConcerned wakes the tenants that have a kubeconfig of the generators, those that should, and the generators themselves.
func (w *generatorWatch) wakeConcerned(ctx context.Context, c concern) error {
	if c.partitions == nil {
		c.partitions = w.held.Now()
	}
	if len(c.partitions) == 0 || len(c.generators) == 0 && !c.all {
		return nil
	}
	there := map[made]bool{}
	if err := w.patiently(ctx, func() error { return w.wakeHaving(ctx, c, there) }); err != nil || len(c.generators) == 0 {
		return err
	}
	err := w.wakeSelected(ctx, c, there)
	for _, g := range c.generators {
		if key := events.Generator(g.name); slices.Contains(c.partitions, key.Partition()) {
			w.wake(key, loop.Wake{Kind: wakeGenerator})
		}
	}
	return err
}

// wakeHaving wakes the tenants that have a kubeconfig of the generators, and notes them.
func (w *generatorWatch) wakeHaving(ctx context.Context, c concern, there map[made]bool) error {
	of := map[string]bool{}
	for _, g := range c.generators {
		of[g.name] = true
	}
	selector := kube.InPartitions(c.partitions) + "," + name.LabelManagedBy
	unusable := slices.ContainsFunc(c.generators, func(g *generator) bool { return g.problem != "" })
	if !c.all && len(of) < manyGenerators && !unusable {
		selector += " in (" + strings.Join(slices.Sorted(maps.Keys(of)), ",") + ")"
	}
	secrets, err := w.s.kube.Metadata(ctx, kube.Secrets, selector)
	if err != nil {
		return err
	}
	for i := range secrets {
		o := &secrets[i]
		tenant := pki.TenantOf(o)
		n := pki.GeneratorIn(tenant, o.Name)
		if n == "" || !c.all && !of[n] || c.namespaces != nil && !c.namespaces[o.Namespace] {
			continue
		}
		key := events.Tenant(o.Namespace, tenant)
		there[made{key, n}] = true
		w.wake(key, loop.Wake{Kind: WakeKubeconfig, Object: n, Version: o.ResourceVersion})
	}
	return nil
}

// wakeSelected wakes the tenants that the generators select and that aren't among those that have a kubeconfig.
func (w *generatorWatch) wakeSelected(ctx context.Context, c concern, there map[made]bool) error {
	return w.s.kube.TenantsIn(ctx, c.partitions, func(o *metav1.PartialObjectMetadata) {
		if c.namespaces != nil && !c.namespaces[o.Namespace] {
			return
		}
		key := events.Tenant(o.Namespace, o.Name)
		w.s.mu.RLock()
		defer w.s.mu.RUnlock()
		for _, g := range c.generators {
			if g.problem == "" && !there[made{key, g.name}] && w.s.matches(g, o.Namespace, o.Labels) {
				w.wake(key, loop.Wake{Kind: WakeKubeconfig, Object: g.name, Gone: true})
			}
		}
	})
}

// patiently repeats a request until the API server answers. A refusal ends the watch, which is started anew.
func (w *generatorWatch) patiently(ctx context.Context, request func() error) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := request()
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		if !kube.IsAway(err) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
