// Deletion. It wakes on addons.removed and on the end of the Deployment, takes away Deployment and pods, then Service,
// Ingress and TLSRoute, and tells workload.removed with what was removed so far.

package workload

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// removing is the own data during deletion: what the services before removed is kept with it, for the fact that says so is
// done with before the pods have ended.
type removing struct {
	state.Workload
	Removals *event.Removals `json:"removals,omitempty"`
}

// remove is the turn of a tenant that is being deleted.
func (s *svc) remove(ctx context.Context, t *turn) error {
	s.slots.free(t.Key)
	if t.step == event.Removed {
		s.sights.forget(t.Key)
		return nil
	}
	sofar := t.addonsRemoved()
	if sofar == nil {
		return t.Wait(ctx, "addons: to be removed")
	}

	namespace, tenant := t.Key.Namespace, t.Key.Name
	// In the foreground the Deployment goes last, after its pods: once it is gone nobody uses the DataStore and the keys.
	foreground := metav1.DeletePropagationForeground
	found, err := s.kube.Delete(ctx, kube.Deployments, namespace, name.Deployment(tenant), metav1.DeleteOptions{PropagationPolicy: &foreground})
	if err != nil {
		return err
	}
	if found {
		return t.Done(ctx, loop.Outcome{
			Step: stepRemoving, Inputs: t.in.String(), Waiting: fmt.Sprintf(waitDeployment+"%s: its pods to end", t.Key),
			Data: removing{t.data, sofar},
		})
	}
	removals := event.Removals{About: t.About(), Removed: map[string]int{}, Left: sofar.Left}
	maps.Copy(removals.Removed, sofar.Removed)
	count := func(r kube.Resource) { removals.Removed[name.ServiceWorkload+"/"+r.Kind]++ }
	if t.step == stepRemoving {
		count(kube.Deployments)
	}
	for _, o := range []struct {
		r    kube.Resource
		name string
		made bool
	}{
		{kube.Services, name.Service(tenant), true},
		{kube.Ingresses, name.Ingress(tenant), t.in.ingress != ""},
		{kube.TLSRoutes, name.Route(tenant), t.in.route != ""},
	} {
		if !o.made {
			continue
		}
		found, err := s.kube.Delete(ctx, o.r, namespace, o.name, metav1.DeleteOptions{})
		if err != nil {
			return err
		}
		if found {
			count(o.r)
		}
	}
	s.sights.forget(t.Key)
	return t.Done(ctx, loop.Outcome{Step: event.Removed, Data: state.Workload{}, Facts: []loop.Tell{{What: event.Removed, Data: removals}}})
}

// addonsRemoved returns what was removed before, nil when it isn't workload's turn yet.
func (t *turn) addonsRemoved() *event.Removals {
	for _, e := range t.Events {
		if e.Service == name.ServiceAddons && e.What == event.Removed && e.Err == nil {
			var r event.Removals
			if err := e.DataAs(&r); err == nil && r.UID == t.UID {
				return &r
			}
		}
	}
	var kept removing
	if err := t.OwnData(&kept); err != nil {
		return nil
	}
	return kept.Removals
}
