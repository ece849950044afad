// A tenant's kubeconfigs of KubeconfigGenerators, beside its own Secrets and by the same means: made once the endpoint is known, put
// right, renewed, removed when no generator asks for them any more. What can't be made is no failure of the tenant: it is in the
// state, and in the generator's status.

package generator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// What could not be made is tried again after a while, first soon, then after as long as it has failed, up to an hour.
const (
	soonestRetry = 5 * time.Second
	latestRetry  = time.Hour
)

// sideBySide bounds how many of a tenant's kubeconfigs are made at once.
const sideBySide = 4

// wakeRetry is the kind of wake of a tenant for which something could not be made: it is time to try again.
const wakeRetry = "Retry"

// Ensure makes, renews and removes a tenant's kubeconfigs as its generators request, notes them in the result and publishes what
// changed since before. What can't be made is noted in the result, too, and is no error; errors are those that pass by themselves.
func (s *Generators) Ensure(
	ctx context.Context, t *loop.Turn, in pki.Input, wanted Requests, before map[string]state.Generated, r *pki.Result,
) error {
	now := s.now()
	r.Data.Generated = map[string]state.Generated{}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(sideBySide)
	for n, x := range wanted.all {
		g.Go(func() error {
			is, renewAt, err := s.ensureOne(gctx, in, x, before[n], r, now)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.Data.Generated[n] = is
			r.Data.RenewAt = pki.Earliest(r.Data.RenewAt, renewAt)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for n, o := range unrequested(in.Name, wanted, before, r.Found) {
		if !wanted.known || wanted.leftAlone[n] {
			r.Data.Generated[n] = asFound(before[n], o)
			continue
		}
		if err := s.remove(ctx, in, n, o); err != nil {
			if passes(ctx, err) {
				return err
			}
			r.Data.Generated[n] = failed(before[n], o, err, now)
		}
	}
	setRetry(t, r.Data.Generated, now)
	return s.Tell(ctx, t, before, r.Data.Generated)
}

// ensureOne makes one kubeconfig so. The error is one that passes.
func (s *Generators) ensureOne(ctx context.Context, in pki.Input, x request, before state.Generated, r *pki.Result, now time.Time) (
	is state.Generated, renewAt time.Time, err error,
) {
	found := r.Found[name.GeneratedKubeconfig(in.Name, x.generator)]
	switch {
	case x.failure != "":
		return failed(before, found, errors.New(x.failure), now), time.Time{}, nil
	case in.Exposed == nil:
		before.Error, before.Since = "", time.Time{}
		return before, time.Time{}, nil
	}
	w := in.Generated(x.generator, x.user, x.groups, x.endpoint)
	a, err := s.secrets.Apply(ctx, in, &w, found, r.CA, now)
	switch {
	case err == nil:
		return state.Generated{Secret: a.State, Inputs: x.inputs}, a.RenewAt, nil
	case passes(ctx, err):
		return state.Generated{}, time.Time{}, err
	}
	return failed(before, found, err, now), time.Time{}, nil
}

// remove deletes a kubeconfig that no generator asks for. o is nil when it isn't among those with our labels.
func (s *Generators) remove(ctx context.Context, in pki.Input, generator string, o *corev1.Secret) (err error) {
	if o == nil {
		if o, err = s.secrets.Get(ctx, in.Namespace, name.GeneratedKubeconfig(in.Name, generator)); err != nil {
			return err
		}
	}
	if o == nil || pki.GeneratorOf(in.Name, o) != generator {
		return nil
	}
	return s.secrets.Delete(ctx, o)
}

// failed is what the state says of a kubeconfig that can't be made as requested. One that is there, o, stays.
func failed(before state.Generated, o *corev1.Secret, err error, now time.Time) state.Generated {
	is := asFound(before, o)
	is.Inputs, is.Error = "", err.Error()
	if before.Error == "" {
		is.Since = now.UTC()
	}
	return is
}

// unrequested returns the generators that ask for nothing, of which the state or the management cluster has something: with the
// Secret, when it is among those with our labels.
func unrequested(tenant string, r Requests, before map[string]state.Generated, found map[string]*corev1.Secret) map[string]*corev1.Secret {
	all := map[string]*corev1.Secret{}
	for n := range before {
		all[n] = nil
	}
	for _, o := range found {
		if n := pki.GeneratorOf(tenant, o); n != "" {
			all[n] = o
		}
	}
	for n := range r.all {
		delete(all, n)
	}
	return all
}

// asFound is what the state says of a kubeconfig that is left alone, as it is now: it isn't as requested when somebody changed it.
func asFound(before state.Generated, o *corev1.Secret) state.Generated {
	if o == nil {
		return state.Generated{Error: before.Error, Since: before.Since}
	}
	if sum := name.Checksum(o.Data); before.Checksum != sum {
		before.Secret, before.Inputs = state.Secret{Checksum: sum}, ""
	}
	before.Name, before.ResourceVersion = o.Name, o.ResourceVersion
	return before
}

// setRetry sets the alarm at which what failed is tried again.
func setRetry(t *loop.Turn, is map[string]state.Generated, now time.Time) {
	t.NoAlarm()
	for _, g := range is {
		if g.Error != "" {
			t.Alarm(min(max(now.Sub(g.Since), soonestRetry), latestRetry), loop.Wake{Kind: wakeRetry}) // the first counts
		}
	}
}

// Tell tells of each kubeconfig that changed, before the state is written: a crash in between repeats both.
func (s *Generators) Tell(ctx context.Context, t *loop.Turn, before, is map[string]state.Generated) error {
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
		if g, _ := s.find(n); g != nil {
			fact.UID, fact.Generation = g.uid, g.generation
		}
		id := events.ID(t.UID, n, event.Generated, since, now.Checksum, now.Inputs, now.Error)
		if err := s.bus.Tell(ctx, events.Generator(n), fact.Generation, id, event.Generated, fact); err != nil {
			return err
		}
	}
	return nil
}
