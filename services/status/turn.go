package status

// One look at a tenant: read what the services keep, compute, write what differs.

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// handle brings everything outside up to date with the states of one object.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
	if t.Key.Kind == event.DataStores {
		return s.dataStore(ctx, t)
	}
	gone, err := s.announceEnd(ctx, t)
	if err != nil {
		return err
	}
	switch {
	case gone || t.Tenant == nil:
		t.NoAlarm()
		s.metrics.forget(t.Key)
		return nil
	case t.Tenant.LeftAlone():
		return s.paused(ctx, t)
	}
	return s.look(ctx, t)
}

// look computes the status of a tenant that isn't paused, and writes it or puts that off.
func (s *svc) look(ctx context.Context, t *loop.Turn) error {
	in, err := s.read(ctx, t)
	if err != nil {
		return err
	}
	now := time.Now()
	status, next := Compute(t.Tenant, in, now)
	if (in.Previous.Phase == "" || in.Previous.Phase == PhasePaused) && in.rebuilding(next) && !waitedLong(t.Own(), now) {
		// NATS was lost: the tenant was Ready and nobody has said otherwise, so the status stays until all have looked.
		t.Alarm(lookSlow, loop.Wake{Kind: wakeLook})
		return t.Wait(ctx, state.Wait{
			Reason: reason.StatesLost, Text: "the services to look at the tenant again, whose state was lost",
		})
	}

	current, age := false, time.Duration(0)
	if own := t.Own(); own != nil {
		current, age = own.Generation == t.Generation, now.Sub(own.UpdatedAt)
	}
	if next.Applied, err = checksum(status); err != nil {
		return err
	}
	if t.Due() {
		in.Previous.Applied = "" // somebody else may have written it since
	}
	same := in.changed(t, next) == nil && next.Applied == in.Previous.Applied
	plan := lookAt(in.Previous, next, current, same, t.Woken(wakeLook), age)
	if plan.Later {
		s.metrics.note(t.Key, tenantOf(t.Tenant, status, next))
		s.metrics.noteSteps(t, next)
		t.Alarm(plan.Again, loop.Wake{Kind: wakeLook})
		return nil
	}
	if err := s.write(ctx, t, in, status, next); err != nil {
		return err
	}
	s.metrics.noteSteps(t, next)
	if plan.Again > 0 {
		t.Alarm(plan.Again, loop.Wake{Kind: wakeLook})
	} else {
		t.NoAlarm()
	}
	return nil
}

// waitedLong reports whether the services have been waited for long enough. This service waits for nothing else.
func waitedLong(own *state.State, now time.Time) bool {
	return own != nil && own.Wait.Waits() && now.Sub(own.UpdatedAt) > rebuildFor
}

// read gathers what the services know of the tenant, and what status last said: from the object, when its own state is lost.
func (s *svc) read(ctx context.Context, t *loop.Turn) (States, error) {
	in := States{UID: t.UID, Generation: t.Generation}
	if err := t.OwnData(&in.Previous); err != nil {
		in.Previous = state.Status{} // ours to write anew
	}
	g, reads := errgroup.WithContext(ctx)
	g.Go(func() (err error) { in.Certs.State, err = t.Read(reads, name.ServiceCerts, &in.Certs.Data); return err })
	g.Go(func() (err error) {
		in.Datastore.State, err = t.Read(reads, name.ServiceDatastore, &in.Datastore.Data)
		return err
	})
	g.Go(func() (err error) {
		in.Workload.State, err = t.Read(reads, name.ServiceWorkload, &in.Workload.Data)
		return err
	})
	g.Go(func() (err error) {
		in.Addons.State, err = t.Read(reads, name.ServiceAddons, &in.Addons.Data)
		return err
	})
	if err := g.Wait(); err != nil || in.Previous.Phase != "" {
		return in, err
	}
	was, err := s.object(ctx, t)
	in.Previous = seed(was)
	return in, err
}

// object reads the status of the tenant's object, empty when there is none or it is another's.
func (s *svc) object(ctx context.Context, t *loop.Turn) (v1alpha1.TenantControlPlaneStatus, error) {
	object := struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status v1alpha1.TenantControlPlaneStatus `json:"status"`
	}{}
	err := s.kube.Get(ctx, kube.TenantControlPlanes, t.Key.Namespace, t.Key.Name, &object)
	if apierrors.IsNotFound(err) || err == nil && object.Metadata.UID != t.UID {
		return v1alpha1.TenantControlPlaneStatus{}, nil
	}
	if err != nil {
		return v1alpha1.TenantControlPlaneStatus{}, fmt.Errorf("status of %s: %w", t.Key, err)
	}
	return object.Status, nil
}
