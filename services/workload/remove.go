// Deletion. It wakes on the removal that comes before (event.RemovalOrder) and on the end of the Deployment, takes away
// Deployment and pods, then Service, Ingress, TLSRoutes and ConfigMaps, and tells workload.removed with what was removed so far.

package workload

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// stepRemoving is the step of the own state while the Deployment ends; the other steps are named like facts.
const stepRemoving = "removing"

// removing is the own data during deletion. It keeps what the services before removed: the fact that says so is acknowledged
// before the pods have ended.
type removing struct {
	state.Workload
	Removals *event.Removals `json:"removals,omitempty"`
}

// remove is the turn of a tenant that is being deleted.
func (t *turn) remove(ctx context.Context) error {
	t.s.slots.free(t.Key)
	if t.step == event.Removed {
		t.s.observed.forget(t.Key)
		return nil
	}
	var kept removing
	if err := t.OwnData(&kept); err != nil {
		return err
	}
	before := kept.Removals
	if before == nil {
		var err error
		if before, _, err = t.BeginRemoval(ctx); before == nil || err != nil {
			return err
		}
	}

	// In the foreground the Deployment goes last, after its pods: once it is gone nobody uses the DataStore and the keys.
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}
	found, err := t.delete(ctx, kube.Deployments, name.Deployment(t.Key.Name), options)
	if err != nil {
		return err
	}
	if found {
		return t.Done(ctx, loop.Outcome{
			Step: stepRemoving, Wait: podsEnding(kube.Deployments.Kind + " " + t.Key.String()), Data: removing{t.data, before},
		})
	}
	removed, err := t.removeRest(ctx)
	if err != nil {
		return err
	}
	if t.step == stepRemoving {
		removed[kube.Deployments.Kind]++
	}
	t.s.observed.forget(t.Key)
	removals := before.With(name.ServiceWorkload, removed)
	removals.About = t.About()
	return t.Removed(ctx, state.Workload{}, removals)
}

// removeRest removes Service, Ingress, TLSRoutes and ConfigMaps, those that were made, and counts by kind what was there.
func (t *turn) removeRest(ctx context.Context) (removed map[string]int, err error) {
	removed = map[string]int{}
	for _, o := range []struct {
		r    kube.Resource
		name string
		made bool
	}{
		{kube.Services, name.Service(t.Key.Name), true},
		{kube.Ingresses, name.Ingress(t.Key.Name), t.data.Hashes.Ingress != ""},
		{kube.TLSRoutes, name.Route(t.Key.Name), t.data.Hashes.Route != ""},
		{kube.TLSRoutes, name.KonnectivityRoute(t.Key.Name), t.data.Hashes.KonnectivityRoute != ""},
		{kube.ConfigMaps, name.KonnectivityEgressSelector(t.Key.Name), t.data.Hashes.Egress != ""},
		{kube.ConfigMaps, name.KubeadmConfig(t.Key.Name), t.data.Hashes.KubeadmConfig != ""},
	} {
		if !o.made {
			continue
		}
		found, err := t.delete(ctx, o.r, o.name, metav1.DeleteOptions{})
		if err != nil {
			return nil, err
		}
		if found {
			removed[o.r.Kind]++
		}
	}
	return removed, nil
}
