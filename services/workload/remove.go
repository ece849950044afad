// Deletion. It wakes on the removal that comes before (event.RemovalOrder) and on the end of the objects, takes away Deployment and
// pods, then Service, Ingress, TLSRoutes and ConfigMaps, and tells workload.removed with what was removed so far once they are gone. What
// doesn't go is named, with what keeps it.

package workload

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
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
	// Removed counts by kind what this service removed while something else keeps it from going on; nil before the pods have ended.
	Removed map[string]int `json:"removed,omitempty"`
}

// remove is the turn of a tenant that is being deleted.
func (t *turn) remove(ctx context.Context) error {
	t.s.slots.free(t.Key)
	t.s.activator.Close(t.Key)
	if t.step == event.Removed {
		t.s.observed.forget(t.Key)
		return nil
	}
	kept := &removing{}
	if err := t.OwnData(kept); err != nil {
		return err
	}
	if kept.Removals == nil {
		var err error
		if kept.Removals, _, err = t.BeginRemoval(ctx); kept.Removals == nil || err != nil {
			return err
		}
	}
	kept.Workload = t.data
	kept.WaitingSince = time.Time{} // was for pods to be ready; since when they are to end, the Deployment says

	live, err := t.endDeployment(ctx)
	if err != nil {
		return err
	}
	if live != nil {
		return t.awaitEnd(ctx, kept, live)
	}
	if kept.Removed == nil {
		kept.Removed = map[string]int{}
		if t.step == stepRemoving {
			kept.Removed[kube.Deployments.Kind]++
		}
	}
	held, err := t.removeRest(ctx, kept.Removed)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		kind, text, since := kube.Held(held)
		wait := state.Wait{On: kind, Reason: reason.ObjectHeld, Text: text}
		return t.Held(ctx, loop.Outcome{Step: stepRemoving, Wait: wait, Data: kept}, since, loop.Wake{Kind: wakeObject})
	}
	t.s.observed.forget(t.Key)
	removals := kept.Removals.With(name.ServiceWorkload, kept.Removed)
	removals.About = t.About()
	return t.Removed(ctx, state.Workload{}, removals)
}

// endDeployment has the Deployment deleted and returns it while it is there. In the foreground it goes last, after its pods: once it is
// gone nobody uses the DataStore and the keys.
func (t *turn) endDeployment(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	live := &metav1.PartialObjectMetadata{}
	err := t.s.kube.Get(ctx, kube.Deployments, t.Key.Namespace, name.Deployment(t.Key.Name), live)
	if apierrors.IsNotFound(err) || err == nil && t.owner().Of(live) != kube.Own {
		return nil, nil //nolint:nilnil // there is none, and that is all right
	}
	if err != nil || live.DeletionTimestamp != nil && t.step == stepRemoving {
		return live, err
	}
	found, err := t.s.kube.DeleteOnly(ctx, kube.Deployments, live, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
	})
	if err != nil || !found {
		return nil, err
	}
	return live, nil
}

// awaitEnd notes that the Deployment is there still, and why, once its pods have had the time to end. Its watch says when it is gone.
func (t *turn) awaitEnd(ctx context.Context, kept *removing, live *metav1.PartialObjectMetadata) error {
	now, waited := t.s.now().UTC(), time.Duration(0)
	if live.DeletionTimestamp != nil { // else this turn has had it deleted
		waited = now.Sub(begun(live.DeletionTimestamp.Time, now))
	}
	wait, failure := podsEnding(kube.Deployments.Kind+" "+t.Key.String()), (*state.Failure)(nil)
	if waited >= endAfter {
		if pods, listed := t.pods(ctx); listed {
			wait, failure = explainEnding(wait, goingOf(live, pods, now))
		}
	}
	t.Alarm(askEndingIn(waited), loop.Wake{Kind: wakePods})
	return t.Done(ctx, loop.Outcome{Step: stepRemoving, Wait: wait, Data: kept, Failure: failure})
}

// removeRest removes Service, Ingress, TLSRoutes and ConfigMaps, those that were made, adds to removed what it had removed by kind, and
// returns those that are kept.
func (t *turn) removeRest(ctx context.Context, removed map[string]int) (held []*kube.HeldError, err error) {
	for _, o := range []struct {
		r    kube.Resource
		name string
		made bool
	}{
		{kube.EndpointSlices, name.Activator(t.Key.Name), t.hasSlice()},
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
		deleted, err := t.s.kube.RemoveOwned(ctx, o.r, t.Key.Namespace, o.name, t.owner())
		if kept := (*kube.HeldError)(nil); errors.As(err, &kept) {
			held = append(held, kept)
		} else if err != nil {
			return nil, err
		}
		if deleted {
			removed[o.r.Kind]++
		}
	}
	return held, nil
}
