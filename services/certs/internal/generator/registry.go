// Package generator makes the kubeconfigs of tenants that KubeconfigGenerators ask for, beside the tenants' own, and counts them
// in the generators' status.
//
// Files: generator.go reads and checks one generator, resolve.go says what it asks for a tenant, registry.go has all of them,
// watch.go keeps that up to date and wakes the tenants that a change concerns, ensure.go makes them for a tenant, status.go writes
// a generator's status.
package generator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// Generators are all KubeconfigGenerators, as this replica knows them. What is kept about tenants is in their states alone. It is
// safe for concurrent use.
type Generators struct {
	bus     *events.Bus
	kube    *kube.Client
	secrets *pki.Secrets
	log     *slog.Logger
	now     func() time.Time

	mu  sync.RWMutex
	all map[string]*generator // nil until every one is known
	// namespaces are all namespaces; nil until all are known, and when no generator selects by them.
	namespaces *namespaces
	counts     map[string]int // tenants by generator, as last counted
}

// namespaces are the labels of namespaces by name, guarded by the mutex of the generators.
type namespaces struct{ labels map[string]labels.Set }

// New returns Generators that know none; [Generators.Watch] finds them.
func New(bus *events.Bus, secrets *pki.Secrets, log *slog.Logger, now func() time.Time) *Generators {
	return &Generators{bus: bus, kube: secrets.Kube, secrets: secrets, log: log, now: now, counts: map[string]int{}}
}

// find returns a generator, nil when there is none; known is false until that can be said.
func (s *Generators) find(n string) (g *generator, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[n], s.all != nil
}

// Requests returns what the generators ask for the tenant of a turn. The error is one of reading the tenant's object.
func (s *Generators) Requests(ctx context.Context, t *loop.Turn) (Requests, error) {
	return s.requests(s.definition(ctx, t))
}

func (s *Generators) requests(d *definition) (Requests, error) {
	r, matching := Requests{all: map[string]request{}, leftAlone: map[string]bool{}}, []*generator(nil)
	now := s.now()
	s.mu.RLock()
	r.known = s.all != nil
	for n, g := range s.all {
		switch {
		case g.leftAlone(now) || g.namespaces != nil && s.namespaces == nil:
			r.leftAlone[n] = true
		case s.matches(g, d.tenant.Namespace, d.tenant.Labels):
			matching = append(matching, g)
		}
	}
	s.mu.RUnlock()
	for _, g := range matching {
		x, err := g.resolve(d)
		if err != nil {
			return r, fmt.Errorf("fields of %s/%s for KubeconfigGenerator %s: %w", d.tenant.Namespace, d.tenant.Name, g.name, err)
		}
		r.all[g.name] = x
	}
	return r, nil
}

// matches reports whether a generator that has no problem selects a tenant. mu is held.
func (s *Generators) matches(g *generator, namespace string, tenant map[string]string) bool {
	if g.namespaces != nil {
		if s.namespaces == nil {
			return false
		}
		if l, ok := s.namespaces.labels[namespace]; !ok || !g.namespaces.Matches(l) {
			return false
		}
	}
	return g.tenants.Matches(labels.Set(tenant))
}

// Requests are what all generators ask for one tenant.
type Requests struct {
	// known is false until this replica has seen every generator: then nothing is changed.
	known bool
	all   map[string]request // by generator
	// leftAlone are the generators whose kubeconfigs are left alone.
	leftAlone map[string]bool
}

// Met reports whether a tenant's kubeconfigs are as requested, by what is in its state. Without an endpoint none can be made.
// A request that failed is never met: it is tried at every turn.
func (r Requests) Met(have map[string]state.Generated, exposed bool) bool {
	if !r.known {
		return true
	}
	for n, x := range r.all {
		is, ok := have[n]
		if !ok || x.failure != "" || is.Error != "" || exposed && is.Inputs != x.inputs {
			return false
		}
	}
	for n := range have {
		if _, ok := r.all[n]; !ok && !r.leftAlone[n] {
			return false
		}
	}
	return true
}

// definition is the tenant as generators see it.
func (s *Generators) definition(ctx context.Context, t *loop.Turn) *definition {
	return &definition{tenant: t.Tenant, uid: t.UID, read: func() (map[string]any, error) {
		object := map[string]any{}
		err := s.kube.Get(ctx, kube.TenantControlPlanes, t.Key.Namespace, t.Key.Name, &object)
		switch {
		case apierrors.IsNotFound(err):
			return map[string]any{}, nil
		case err != nil && !passes(ctx, err):
			return nil, &fieldError{"can't be read: " + err.Error()}
		}
		return object, err
	}}
}

// passes reports whether an error passes by itself and says nothing about the request: then the turn is repeated.
func passes(ctx context.Context, err error) bool {
	return kube.IsAway(err) || errors.Is(err, fence.ErrFenced) || ctx.Err() != nil
}

// counted notes how many tenants a generator selects.
func (s *Generators) counted(n string, selected int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[n] != nil {
		s.counts[n] = selected
	}
}

// pace is how long facts about a generator's tenants are collected before they are counted, so that many at once make
// one status, and counting is never more than a small share of the work.
func (s *Generators) pace(n string) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return time.Second + time.Duration(s.counts[n])*2*time.Millisecond
}
