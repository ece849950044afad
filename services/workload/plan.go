// What a desired state would mean for a tenant's pods: intake asks for it when somebody wants a plan (stoker.workload.pods).

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// questions are the endpoints.
func (s *svc) questions(bus *events.Bus) events.Questions {
	return events.Questions{
		Service: event.WorkloadService, Version: "1.0.0", Description: "what a change would mean for a tenant's pods",
		Endpoints: map[string]events.Question{
			"pods": {Subject: event.QueryPods, Timeout: podsTimeout, Answer: func(ctx context.Context, question []byte) (any, error) {
				return s.answerPods(ctx, bus, question)
			}},
		},
	}
}

// answerPods compares the pods of a desired state with those that there are.
func (s *svc) answerPods(ctx context.Context, bus *events.Bus, question []byte) (any, error) {
	var q event.PodsQuery
	var after, now state.Tenant
	if err := json.Unmarshal(question, &q); err != nil || json.Unmarshal(q.Tenant, &after) != nil || !events.Tenant(q.Namespace, q.Name).Valid() {
		return nil, &events.Refusal{Code: "400", Message: `send {"namespace":"…","name":"…","tenant":{…}}, the tenant as intake keeps it`}
	}
	key := events.Tenant(q.Namespace, q.Name)
	in := Input{Subject: Subject{Tenant: &after}, KineImage: s.kineImage, GateImage: s.gateImage}
	var before state.Workload
	states := map[string]*state.State{}
	for service, data := range map[string]any{
		name.ServiceIntake: &now, name.ServiceCerts: &in.Certs, name.ServiceDatastore: &in.Datastore, name.ServiceWorkload: &before,
	} {
		st, err := bus.State(ctx, key, service)
		if errors.Is(err, events.ErrNotFound) {
			continue
		}
		if err == nil {
			states[service] = st
			err = json.Unmarshal(st.Data, data)
		}
		if err != nil {
			return nil, fmt.Errorf("state %s of %s: %w", service, key, err)
		}
	}
	spec, own := states[name.ServiceIntake], states[name.ServiceWorkload]
	if spec == nil || own == nil || own.UID != spec.UID || before.ConfigHash == "" {
		return event.PodsReply{Pods: event.PodsStay}, nil // there are none
	}
	in.Advertise = before.AdvertiseAddress
	// Another spec is another generation, in which an upgrade that was undone is tried again.
	generation := own.Generation
	if hash(now.Spec) != hash(after.Spec) {
		generation++
	}
	asked := after.Spec.Kubernetes.Version
	u := upgradeOf(&before, asked, name.UpgradeThrough(after.Annotations), generation)
	after.Spec.Kubernetes.Version = versionOf(u, asked, generation, after.Spec.Sleeps())
	return event.PodsReply{
		Steps: steps(u, generation),
		Pods:  podsAfter(&now.Spec, before.ConfigHash, in), Version: before.Version, Replicas: before.Replicas,
		Complete: own.Generation == spec.Generation && !own.Waits() && !own.Failed() && (own.Step == event.Available || own.Step == event.Slept),
	}, nil
}

// steps are the versions that pods are to run one after the other; none without an upgrade.
func steps(u *state.Upgrade, generation int64) []string {
	if u == nil || u.Undone(generation) {
		return nil
	}
	return append(slices.Clone(u.Through), u.To)
}

// podsAfter says what becomes of the pods that have a config hash, when a tenant of this spec is to be as in. What others make that pods
// mount is taken to be as it is, unless the change is one that they look at.
func podsAfter(now *v1alpha1.TenantControlPlaneSpec, config string, in Input) string {
	switch {
	case Deployment(in).Spec.Template.Annotations[name.AnnotationConfigHash] != config:
		return event.PodsRestart
	case hash(madeByOthers(now)) != hash(madeByOthers(&in.Tenant.Spec)):
		return event.PodsMayRestart
	}
	return event.PodsStay
}

// encrypted is what certs makes configurations of the encryption from.
func encrypted(spec *v1alpha1.TenantControlPlaneSpec) string {
	resources, provider := spec.Kubernetes.APIServer.Encrypted()
	return provider + " " + strings.Join(slices.Sorted(slices.Values(resources)), " ")
}

// madeByOthers is what of a spec certs and datastore, or the endpoint, are made from.
func madeByOthers(spec *v1alpha1.TenantControlPlaneSpec) any {
	control := &spec.ControlPlane
	return []any{
		spec.NetworkProfile, control.Service, control.Ingress, control.Gateway, spec.DataStore, spec.DataStoreSchema, spec.DataStoreUsername,
		spec.DataStoreOverrides, spec.Addons.Konnectivity, encrypted(spec),
	}
}
