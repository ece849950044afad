package intake

// What a change of a tenant would come to, for whoever may command it (stoker.plan.<namespace>.<name>): the change is made as a command
// would make it, but not stored, and workload and addons are asked about what becomes of it. verdict.go says what follows.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// answerPlan says what a change of a tenant would come to.
func (s *svc) answerPlan(ctx context.Context, subject string, question []byte) (any, error) {
	c := command{key: events.ParseQuestionSubject(event.QueryPlan, subject), kind: kinds[event.TenantControlPlanes]}
	if !c.key.Valid() || c.key.Namespace == events.ClusterScoped {
		return nil, badQuestion("the subject must be %s.<namespace>.<name>, of a tenant", event.QueryPlan)
	}
	const example = `{"spec":{"kubernetes":{"version":"v1.36.3"}}} or {"apply":{…}}`
	var q event.PlanQuery
	if err := decodeQuestion(question, &q, example); err != nil {
		return nil, err
	}
	if (len(q.Spec) > 0) == (len(q.Apply) > 0) {
		return nil, badQuestion("give one of spec and apply; send JSON like %s", example)
	}
	p, err := s.propose(ctx, c, q)
	var refused refusal
	switch {
	case errors.As(err, &refused):
		p.refused = refused[:min(len(refused), maxErrors)]
	case err != nil:
		return nil, err
	default:
		if err := s.lookInto(ctx, c.key, p); err != nil {
			return nil, err
		}
	}
	return p.reply(c.key), nil
}

// propose makes the change without storing it. Its error may be a refusal of the change.
func (s *svc) propose(ctx context.Context, c command, q event.PlanQuery) (*proposal, error) {
	p := &proposal{}
	if err := s.reaches(c); err != nil {
		return p, err
	}
	there, err := s.read(ctx, c)
	if err != nil {
		return p, err
	}
	if there == nil && len(q.Apply) == 0 {
		return p, &events.Refusal{Code: "404", Message: "there is no tenant " + c.key.String()}
	}
	p.there = there
	var raw json.RawMessage
	write, sent, err := s.proposed(c, q, there, &raw)
	if err != nil {
		return p, err
	}
	if left := s.stalls.left(c, time.Now()); left > 0 {
		return p, stalled(c, fmt.Sprintf("nothing is tried for another %s", left.Round(time.Second)))
	}
	if err := s.permitted(ctx, c, func(ctx context.Context) error { return write(kube.DryRun(ctx)) }); err != nil {
		return p, refused(err, sent)
	}
	p.after, err = c.object(raw)
	return p, err
}

// proposed is the write that makes the change, and the object as it was sent. The write decodes the API server's answer into raw.
func (s *svc) proposed(c command, q event.PlanQuery, there *object, raw *json.RawMessage) (func(context.Context) error, any, error) {
	if len(q.Apply) == 0 {
		what, err := c.patching(&event.PatchCommand{Spec: q.Spec})
		if err != nil {
			return nil, nil, err
		}
		patch, err := what.patch(there)
		if err != nil {
			return nil, nil, err
		}
		if bad := provided(there, patch); len(bad) > 0 {
			return nil, nil, bad
		}
		before, _ := parse(there.raw)
		return func(ctx context.Context) error {
			return s.kube.MergePatch(ctx, c.kind.Resource, c.key.Namespace, c.key.Name, patch, raw)
		}, merge(any(before), any(patch)), nil
	}
	if bad := providedWhole(there); bad != nil {
		return nil, nil, bad
	}
	_, body, err := whole(c.key, c.kind, q.Apply, s.watchFilter)
	if err != nil {
		return nil, nil, err
	}
	if there != nil && there.tenant != nil {
		withRecord(within(body, "metadata"), name.DataStore(there.Labels, there.Annotations))
	}
	data, err := json.Marshal(body)
	return func(ctx context.Context) error {
		return s.kube.ApplyRaw(ctx, c.kind.Resource, c.key.Namespace, c.key.Name, data, raw)
	}, body, err
}

// lookInto looks at what the change meets: pods, DataStores, and, for another minor version, what is inside the tenant.
func (s *svc) lookInto(ctx context.Context, key events.Key, p *proposal) error {
	var before *state.Tenant
	spec, err := s.bus.State(ctx, key, name.ServiceIntake)
	switch {
	case err == nil:
		before = &state.Tenant{}
		err = json.Unmarshal(spec.Data, before)
	case errors.Is(err, events.ErrNotFound):
		err = nil
	}
	if err != nil {
		return err
	}
	effective := func(o *object) *v1alpha1.TenantControlPlaneSpec {
		of := desired(o.tenant, assigned(o.tenant, before, s.fallback), before, 0, "", time.Now())
		return &of.Spec
	}
	p.spec = effective(p.after)
	if p.there != nil {
		p.now = effective(p.there)
	}
	var g errgroup.Group
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if before != nil && p.there != nil {
		about := event.Query{Namespace: key.Namespace, Name: key.Name}
		proposed := desired(p.after.tenant, p.spec.DataStore, before, 0, "", time.Now())
		g.Go(func() error {
			q := event.PodsQuery{Query: about, Tenant: event.Marshal(proposed)}
			p.pods, p.podsFailed = answerOf[event.PodsReply](ask, s.bus, name.ServiceWorkload, event.QueryPods, q)
			return nil
		})
		if p.upgrades() {
			g.Go(func() error {
				p.inside, p.insideFailed = answerOf[event.InsideReply](ask, s.bus, name.ServiceAddons, event.QueryInside, about)
				return nil
			})
		}
	}
	g.Go(func() (err error) {
		p.stores, err = s.storesOf(ctx, p.spec)
		return err
	})
	return g.Wait()
}

// answerOf asks another service. failed says why there is no answer.
func answerOf[T any](ctx context.Context, bus *events.Bus, service, subject string, q any) (reply *T, failed string) {
	r, err := events.Ask[T](ctx, bus.Conn(), subject, q)
	switch {
	case err == nil:
		return &r, ""
	case errors.Is(err, nats.ErrNoResponders):
		return nil, "no replica of " + service + " answers"
	case errors.Is(err, context.DeadlineExceeded):
		return nil, service + " does not answer in time"
	}
	return nil, err.Error()
}

// storesOf reads the DataStores that a tenant uses, by name; nil for one that isn't there.
func (s *svc) storesOf(ctx context.Context, spec *v1alpha1.TenantControlPlaneSpec) (map[string]*v1alpha1.DataStore, error) {
	names := []string{spec.DataStore}
	for _, o := range spec.DataStoreOverrides {
		names = append(names, o.DataStore)
	}
	slices.Sort(names)
	stores := map[string]*v1alpha1.DataStore{}
	for _, n := range slices.Compact(names) {
		if n == "" {
			continue
		}
		o, err := s.dataStore(ctx, n)
		if err != nil {
			return nil, err
		}
		stores[n] = o
	}
	return stores, nil
}
