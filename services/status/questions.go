package status

// Questions about a tenant, answered by whichever replica the server picks: stoker.status.get and stoker.status.why.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// questions are the endpoints.
func (s *svc) questions() events.Questions {
	return events.Questions{
		Service: event.StatusService, Version: "1.0.0", Description: "where a tenant stands, and what it waits for",
		AtOnce: questionsAtOnce,
		Endpoints: map[string]events.Question{
			"get": {Subject: event.QueryStatus, Timeout: questionTimeout,
				Answer: answer(s, func(_ context.Context, key events.Key, states map[string]*state.State) event.StatusReply {
					return Get(key, states)
				})},
			"why": {Subject: event.QueryWhy, Timeout: questionTimeout, Answer: answer(s, s.why)},
		},
	}
}

// answer reads what the services keep about the tenant that a question is about, and replies.
func answer[T any](s *svc, reply func(context.Context, events.Key, map[string]*state.State) T) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, question []byte) (any, error) {
		var q event.Query
		if err := json.Unmarshal(question, &q); err != nil || q.Namespace == "" || q.Name == "" {
			return nil, &events.Refusal{Code: "400", Message: `send {"namespace":"…","name":"…"}`}
		}
		key := events.Tenant(q.Namespace, q.Name)
		if !key.Valid() {
			return nil, &events.Refusal{Code: "400", Message: key.String() + " can't be the name of a tenant"}
		}
		states, err := s.states(ctx, key)
		if err != nil {
			return nil, err
		}
		if states[name.ServiceIntake] == nil {
			return nil, s.unknown(ctx, key)
		}
		return reply(ctx, key, states), nil
	}
}

// unknown is the answer about a tenant of which no service keeps anything.
func (s *svc) unknown(ctx context.Context, key events.Key) error {
	o := &v1alpha1.TenantControlPlane{}
	err := s.kube.Get(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, o)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("whether there is a tenant %s: %w", key, err)
	}
	if err == nil && v1alpha1.MadeByKamaji(o) {
		return &events.Refusal{Code: "409", Message: reason.NotAdopted + ": " + key.String() + " was made by Kamaji: Stoker does nothing for it, and no " +
			"deletion of it ends, until `stoker adopt " + key.Name + " -n " + key.Namespace + "`"}
	}
	return &events.Refusal{Code: "404", Message: "there is no tenant " + key.String()}
}

// states reads what every service keeps; those that have come to the tenant.
func (s *svc) states(ctx context.Context, key events.Key) (map[string]*state.State, error) {
	services := name.Services()
	found := make([]*state.State, len(services))
	g, ctx := errgroup.WithContext(ctx)
	for i, service := range services {
		g.Go(func() (err error) {
			found[i], err = s.bus.State(ctx, key, service)
			if errors.Is(err, events.ErrNotFound) {
				found[i], err = nil, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	states := map[string]*state.State{}
	for i, service := range services {
		// A state of an earlier tenant of that name says nothing.
		if found[i] != nil && (found[0] == nil || found[i].UID == found[0].UID) {
			states[service] = found[i]
		}
	}
	return states, nil
}

// decode decodes what intake and status keep.
func decode(key events.Key, states map[string]*state.State) (about event.About, tenant state.Tenant, last state.Status) {
	about = event.About{Namespace: key.Namespace, Name: key.Name}
	if spec := states[name.ServiceIntake]; spec != nil {
		about.UID, about.Generation = spec.UID, spec.Generation
		_ = json.Unmarshal(spec.Data, &tenant) // what can't be read stays unsaid
	}
	if own := states[name.ServiceStatus]; own != nil {
		_ = json.Unmarshal(own.Data, &last)
	}
	return about, tenant, last
}

// Get answers stoker.status.get.
func Get(key events.Key, states map[string]*state.State) event.StatusReply {
	about, tenant, last := decode(key, states)
	if own := states[name.ServiceStatus]; own != nil {
		about.Generation = own.Generation // not yet the accepted one: what is said is of before
	}
	return event.StatusReply{StatusChanged: Reply(about, &tenant, last), Conditions: last.Conditions}
}

// Why answers stoker.status.why.
func Why(key events.Key, states map[string]*state.State) event.WhyReply {
	about, tenant, last := decode(key, states)
	w := event.WhyReply{
		About: about, Phase: last.Phase, Ready: last.Ready, Reason: last.Reason, Message: last.Message,
		AcceptedAt: tenant.AcceptedAt, Deleting: tenant.Deleting, Paused: tenant.LeftAlone(), PausedUntil: tenant.PausedUntil,
	}
	for _, service := range name.Services() {
		if states[service] == nil && name.Optional(service) {
			continue // the tenant is none of its
		}
		a := event.ServiceState{Service: service}
		if s := states[service]; s != nil {
			a.Step, a.Generation, a.Wait, a.Failure, a.Since = s.Step, s.Generation, s.Wait, s.Failure, s.UpdatedAt
		}
		w.Services = append(w.Services, a)
	}
	if s := states[name.ServiceDatastore]; s != nil {
		var data state.Datastore
		_ = json.Unmarshal(s.Data, &data) // what can't be read stays unsaid
		w.Backup, w.Usage = data.Backup, data.Usage
	}
	if s := states[name.ServiceCerts]; s != nil {
		var data state.Certs
		_ = json.Unmarshal(s.Data, &data)
		if a := data.ArgoCD; a != nil && a.Reason != "" {
			w.ArgoCD = &event.ArgoCDState{Reason: a.Reason, Message: a.Message, Since: a.Since}
		}
	}
	w.TenantAddons = unready(states[name.ServiceTenantAddons])
	return w
}

// unready are the TenantAddons that aren't as they must be in a tenant.
func unready(s *state.State) (all []event.TenantAddonState) {
	var data state.TenantAddons
	if s != nil {
		_ = json.Unmarshal(s.Data, &data) // what can't be read stays unsaid
	}
	for _, key := range slices.Sorted(maps.Keys(data.Addons)) {
		if why := data.Addons[key].Reason; why != "" && why != tenantaddon.ReasonSucceeded {
			namespace, n, _ := strings.Cut(key, "/")
			all = append(all, event.TenantAddonState{Namespace: namespace, Name: n, Reason: why})
		}
	}
	return all
}

// why is Why, and what should be put right about the tenant's DataStores; of those that can't be read now it says nothing.
func (s *svc) why(ctx context.Context, key events.Key, states map[string]*state.State) event.WhyReply {
	w := Why(key, states)
	_, tenant, _ := decode(key, states)
	ctx, cancel := context.WithTimeout(ctx, storesTimeout) // the rest is worth telling without the management cluster
	defer cancel()
	names := []string{tenant.Spec.DataStore}
	for _, o := range tenant.Spec.DataStoreOverrides {
		names = append(names, o.DataStore)
	}
	for i, n := range names {
		if n == "" || slices.Contains(names[:i], n) {
			continue
		}
		o := &v1alpha1.DataStore{}
		err := s.kube.Get(ctx, kube.DataStores, "", n, o)
		if d := ailing(n, o); apierrors.IsNotFound(err) {
			w.DataStores = append(w.DataStores, event.DataStoreState{Name: n, Reason: reason.DataStoreMissing})
		} else if err == nil && d != nil {
			w.DataStores = append(w.DataStores, *d)
		}
	}
	return w
}

// ailing is what should be put right about a DataStore, nil for nothing, or when it isn't known yet.
func ailing(n string, o *v1alpha1.DataStore) *event.DataStoreState {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.DataStoreConditionValid)
	if c == nil || c.Reason == v1alpha1.DataStoreReasonValid {
		return nil
	}
	return &event.DataStoreState{Name: n, Ready: o.Status.Ready, Reason: c.Reason, Message: c.Message}
}
