// A tenant's kubeconfigs of KubeconfigGenerators, beside its own Secrets and by the same means: made once the endpoint is
// known, put right, renewed, taken away when nobody asks for them any more. What can't be made is no failure of the tenant:
// it is in the state, and in the generator's status.

package certs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// What could not be made is tried again after a while, first soon, then after as long as it has failed, up to an hour.
const (
	soonestRetry = 5 * time.Second
	latestRetry  = time.Hour
)

// Kinds of wakes because of generators.
const (
	// wakeKubeconfig: a tenant's kubeconfig of a generator (Object) was seen, or the generator changed.
	wakeKubeconfig = "GeneratedKubeconfig"
	// wakeRetry: it is time to try again what could not be made.
	wakeRetry = "Retry"
)

// generatedComponent stands for a generator's kubeconfig among the components in a sighting.
func generatedComponent(generator string) string { return componentPrefix + generator }

const componentPrefix = name.ComponentGeneratedKubeconfig + "/"

// definition is the tenant as generators see it.
func (s *svc) definition(ctx context.Context, t *loop.Turn) *definition {
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

// passes reports whether an error has to do with the moment and not with what was asked: then the turn is repeated.
func passes(ctx context.Context, err error) bool {
	return kube.IsAway(err) || errors.Is(err, fence.ErrFenced) || ctx.Err() != nil
}

// generate makes a tenant's kubeconfigs of generators so, puts them into the result and tells what changed.
func (s *svc) generate(ctx context.Context, t *loop.Turn, in input, a asked, before map[string]state.Generated, r *result, now time.Time) error {
	r.data.Generated = map[string]state.Generated{}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(sideBySide)
	for n, x := range a.asks {
		g.Go(func() error {
			is, renewAt, err := s.generateOne(gctx, in, x, before[n], r, now)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.data.Generated[n] = is
			r.data.RenewAt = earliest(r.data.RenewAt, renewAt)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for n, o := range unasked(in.Name, a, before, r.have) {
		if !a.known || a.resting[n] {
			r.data.Generated[n] = left(before[n], o)
			continue
		}
		if err := s.take(ctx, in, n, o); err != nil {
			if passes(ctx, err) {
				return err
			}
			r.data.Generated[n] = failed(before[n], o, err, now)
		}
	}
	s.retry(t, r.data.Generated, now)
	return s.tellGenerated(ctx, t, before, r.data.Generated)
}

// generateOne makes one kubeconfig so. The error is one that passes.
func (s *svc) generateOne(ctx context.Context, in input, x ask, before state.Generated, r *result, now time.Time) (is state.Generated, renewAt time.Time, err error) {
	have := r.have[name.GeneratedKubeconfig(in.Name, x.generator)]
	switch {
	case x.failure != "":
		return failed(before, have, errors.New(x.failure), now), time.Time{}, nil
	case in.Exposed == nil:
		before.Error, before.Since = "", time.Time{}
		return before, time.Time{}, nil
	}
	w := in.generated(x)
	secret, v, _, err := s.settle(ctx, in, &w, have, r.ca, nil, now)
	switch {
	case err == nil:
		return state.Generated{Secret: written(secret, v), Inputs: x.inputs}, v.RenewAt, nil
	case passes(ctx, err):
		return state.Generated{}, time.Time{}, err
	}
	return failed(before, have, err, now), time.Time{}, nil
}

// take removes a kubeconfig that nobody asks for. o is nil when it isn't among those with our labels.
func (s *svc) take(ctx context.Context, in input, generator string, o *corev1.Secret) (err error) {
	if o == nil {
		if o, err = s.get(ctx, in.Namespace, name.GeneratedKubeconfig(in.Name, generator)); err != nil {
			return err
		}
	}
	if o == nil || generatorOf(in.Name, o) != generator {
		return nil
	}
	return s.delete(ctx, o)
}

// failed is what the state says of a kubeconfig that can't be made as asked. One that is there, o, stays.
func failed(before state.Generated, o *corev1.Secret, err error, now time.Time) state.Generated {
	is := left(before, o)
	is.Inputs, is.Error = "", err.Error()
	if before.Error == "" {
		is.Since = now.UTC()
	}
	return is
}

// unasked returns the generators that ask for nothing, of which the state or the management cluster has something: with
// the Secret, when it is among those with our labels.
func unasked(tenant string, a asked, before map[string]state.Generated, have map[string]*corev1.Secret) map[string]*corev1.Secret {
	all := map[string]*corev1.Secret{}
	for n := range before {
		all[n] = nil
	}
	for _, o := range have {
		if n := generatorOf(tenant, o); n != "" {
			all[n] = o
		}
	}
	for n := range a.asks {
		delete(all, n)
	}
	return all
}

// left is what the state says of a kubeconfig that is left alone, as it is now: it isn't as asked when somebody changed it.
func left(before state.Generated, o *corev1.Secret) state.Generated {
	if o == nil {
		return state.Generated{Error: before.Error, Since: before.Since}
	}
	if sum := name.Checksum(o.Data); before.Checksum != sum {
		before.Secret, before.Inputs = state.Secret{Checksum: sum}, ""
	}
	before.Name, before.ResourceVersion = o.Name, o.ResourceVersion
	return before
}

// retry sets the alarm for a second look at what failed.
func (s *svc) retry(t *loop.Turn, is map[string]state.Generated, now time.Time) {
	t.NoAlarm()
	for _, g := range is {
		if g.Error != "" {
			t.Alarm(min(max(now.Sub(g.Since), soonestRetry), latestRetry), loop.Wake{Kind: wakeRetry}) // the first counts
		}
	}
}

// tellGenerated tells of each kubeconfig that changed, before the state is written: a crash in between repeats both.
func (s *svc) tellGenerated(ctx context.Context, t *loop.Turn, before, is map[string]state.Generated) error {
	all := maps.Clone(before)
	if all == nil {
		all = map[string]state.Generated{}
	}
	maps.Copy(all, is)
	since := ""
	if own := t.Own(); own != nil {
		since = own.UpdatedAt.Format(time.RFC3339Nano)
	}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		was, had := before[n]
		now, has := is[n]
		if had == has && was.Name == now.Name && was.Checksum == now.Checksum && was.Inputs == now.Inputs && was.Error == now.Error {
			continue
		}
		fact := event.KubeconfigGenerated{About: event.About{Name: n}, Tenant: t.Key.String(), Secret: now.Name, Message: now.Error}
		if g, _ := s.generators.find(n); g != nil {
			fact.UID, fact.Generation = g.uid, g.generation
		}
		id := events.ID(t.UID, n, event.Generated, since, now.Checksum, now.Inputs, now.Error)
		if err := s.bus.Tell(ctx, events.Generator(n), fact.Generation, id, event.Generated, fact); err != nil {
			return err
		}
	}
	return nil
}
