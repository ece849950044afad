// KubeconfigGenerators as each replica knows them: all of them, read anew when one changes, and the labels of namespaces
// while a generator selects by them. A change wakes the tenants it concerns in the replica's partitions; what is kept about
// tenants is in their states alone.

package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// generators are all KubeconfigGenerators. It is safe for concurrent use.
type generators struct {
	kube *kube.Client
	log  *slog.Logger
	now  func() time.Time

	mu  sync.RWMutex
	all map[string]*generator // nil until every one is known
	// places are the labels of all namespaces; nil until all are known, and when no generator asks for them.
	places   *places
	selected map[string]int // tenants by generator, as last counted
}

// places are the labels of namespaces by name, guarded by the mutex of the generators.
type places struct{ labels map[string]labels.Set }

func newGenerators(k *kube.Client, log *slog.Logger, now func() time.Time) *generators {
	return &generators{kube: k, log: log, now: now, selected: map[string]int{}}
}

// find returns a generator, nil when there is none; known is false until that can be said.
func (s *generators) find(n string) (g *generator, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[n], s.all != nil
}

// asks returns what the generators ask for a tenant. The error is one of reading the tenant's object.
func (s *generators) asks(d *definition) (asked, error) {
	a, matching := asked{asks: map[string]ask{}, resting: map[string]bool{}}, []*generator(nil)
	now := s.now()
	s.mu.RLock()
	a.known = s.all != nil
	for n, g := range s.all {
		switch {
		case g.resting(now) || g.namespaces != nil && s.places == nil:
			a.resting[n] = true
		case s.matches(g, d.tenant.Namespace, d.tenant.Labels):
			matching = append(matching, g)
		}
	}
	s.mu.RUnlock()
	for _, g := range matching {
		x, err := g.ask(d)
		if err != nil {
			return a, fmt.Errorf("fields of %s/%s for KubeconfigGenerator %s: %w", d.tenant.Namespace, d.tenant.Name, g.name, err)
		}
		a.asks[g.name] = x
	}
	return a, nil
}

// matches reports whether a generator that has no problem selects a tenant. mu is held.
func (s *generators) matches(g *generator, namespace string, tenant map[string]string) bool {
	if g.namespaces != nil {
		if s.places == nil {
			return false
		}
		if l, ok := s.places.labels[namespace]; !ok || !g.namespaces.Matches(l) {
			return false
		}
	}
	return g.tenants.Matches(labels.Set(tenant))
}

// Reasons of a generator's own lane.
const (
	wakeGenerator = "generator"   // the object changed
	wakeCount     = "count"       // it is time to count
	wakeRecount   = "count again" // it is time for a second look
)

// watch keeps the generators up to date until ctx ends and wakes whom a change concerns in these partitions.
func (s *generators) watch(ctx context.Context, partitions []int, wake loop.Waker) error {
	s.mu.Lock()
	s.all, s.places = nil, nil // others' changes may have passed meanwhile
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
		w := &generatorWatch{s: s, partitions: partitions, wake: wake, group: group, namespaces: namespaces}
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
	s          *generators
	partitions []int
	wake       loop.Waker
	group      *errgroup.Group
	namespaces *signal // that changed; "" says that all are known
	endPlaces  context.CancelFunc
}

func (w *generatorWatch) run(ctx context.Context, objects *signal) error {
	complete := false
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
			concerned = w.moved(w.namespaces.take())
		case <-end:
			concerned = concern{generators: []*generator{resumes}}
		}
		if err := w.tell(ctx, concerned); err != nil {
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
}

// reload reads all generators.
func (w *generatorWatch) reload(ctx context.Context) (concern, error) {
	list := &v1alpha1.KubeconfigGeneratorList{}
	if err := w.patiently(ctx, func() error { return w.s.kube.List(ctx, kube.KubeconfigGenerators, "", "", list) }); err != nil {
		return concern{}, fmt.Errorf("list KubeconfigGenerators: %w", err)
	}
	next, places := map[string]*generator{}, false
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp == nil {
			g := newGenerator(o)
			next[g.name], places = g, places || g.namespaces != nil
			if g.problem != "" {
				w.s.log.Warn("KubeconfigGenerator can't be used", "generator", g.name, "cause", g.problem)
			}
		}
	}
	w.s.mu.Lock()
	before := w.s.all
	w.s.all = next
	for n := range w.s.selected {
		if next[n] == nil {
			delete(w.s.selected, n)
		}
	}
	w.s.mu.Unlock()
	w.watchPlaces(ctx, places)
	c := concern{all: before == nil}
	for n, g := range next {
		if was := before[n]; was == nil || was.seen != g.seen {
			c.generators = append(c.generators, g)
		}
	}
	for n, was := range before {
		if g := next[n]; g == nil || was.seen != g.seen {
			c.generators = append(c.generators, was)
		}
	}
	return c, nil
}

// watchPlaces watches namespaces for as long as a generator selects by them.
func (w *generatorWatch) watchPlaces(ctx context.Context, needed bool) {
	switch {
	case needed == (w.endPlaces != nil):
		return
	case !needed:
		w.endPlaces()
		w.endPlaces = nil
		return
	}
	s := w.s
	ctx, w.endPlaces = context.WithCancel(ctx)
	all, complete := &places{map[string]labels.Set{}}, false
	w.group.Go(func() error {
		defer func() {
			s.mu.Lock()
			if s.places == all {
				s.places = nil
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
			s.places = all
			s.mu.Unlock()
			w.namespaces.set("")
		})
	})
}

// moved returns whom changes of namespaces concern.
func (w *generatorWatch) moved(names map[string]bool) concern {
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

// tell wakes the tenants that have a kubeconfig of the generators, those that should, and the generators themselves.
func (w *generatorWatch) tell(ctx context.Context, c concern) error {
	if len(c.generators) == 0 && !c.all {
		return nil
	}
	of := map[string]bool{}
	for _, g := range c.generators {
		of[g.name] = true
	}
	filter := kube.InPartitions(w.partitions)
	selector := filter + "," + name.LabelManagedBy
	if !c.all && len(of) < manyGenerators && !slices.ContainsFunc(c.generators, func(g *generator) bool { return g.problem != "" }) {
		selector += " in (" + strings.Join(slices.Sorted(maps.Keys(of)), ",") + ")"
	}
	type pair struct {
		tenant    events.Key
		generator string
	}
	there := map[pair]bool{}
	err := w.patiently(ctx, func() error {
		secrets, err := w.s.kube.Metadata(ctx, kube.Secrets, selector)
		if err != nil {
			return err
		}
		for i := range secrets {
			o := &secrets[i]
			tenant := tenantOf(o)
			n := generatorIn(tenant, o.Name)
			if n == "" || !c.all && !of[n] || c.namespaces != nil && !c.namespaces[o.Namespace] {
				continue
			}
			key := events.Tenant(o.Namespace, tenant)
			there[pair{key, n}] = true
			w.wake(key, wakeOf(generatedComponent(n), o.ResourceVersion, false))
		}
		return nil
	})
	if err != nil || len(of) == 0 {
		return err
	}
	err = w.patiently(ctx, func() error {
		tenants, err := w.s.kube.Metadata(ctx, kube.TenantControlPlanes, filter)
		if err != nil {
			return err
		}
		w.s.mu.RLock()
		defer w.s.mu.RUnlock()
		for i := range tenants {
			o := &tenants[i]
			if c.namespaces != nil && !c.namespaces[o.Namespace] {
				continue
			}
			key := events.Tenant(o.Namespace, o.Name)
			for _, g := range c.generators {
				if g.problem == "" && !there[pair{key, g.name}] && w.s.matches(g, o.Namespace, o.Labels) {
					w.wake(key, wakeOf(generatedComponent(g.name), "", true))
				}
			}
		}
		return nil
	})
	for n := range of {
		w.wake(events.Generator(n), loop.Wake{Kind: wakeGenerator})
	}
	return err
}

// patiently asks the API server until it answers. A refusal ends the watch, which is started anew.
func (w *generatorWatch) patiently(ctx context.Context, ask func() error) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := ask()
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

// counted notes how many tenants a generator selects.
func (s *generators) counted(n string, selected int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[n] != nil {
		s.selected[n] = selected
	}
}

// pace is how long facts about a generator's tenants are collected before they are counted, so that many at once make
// one status, and counting is never more than a small share of the work.
func (s *generators) pace(n string) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return time.Second + time.Duration(s.selected[n])*2*time.Millisecond
}
