// Package status is the way out: it makes the tenants' API status, what portals subscribe to and the metrics from what the
// other services keep.
//
// It wakes on every fact of another service and, while a tenant is on its way, for second looks. It makes so the status of TenantControlPlane and DataStore and the last
// message on stoker.status.<namespace>.<name>. It tells status.changed and status.deleted.
package status

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	return service.Run(ctx, cfg, func(c *service.Clients) (*loop.Loop, error) {
		s := &svc{bus: c.Bus, kube: c.Kube, metrics: newMetrics(c.Metrics)}
		stop, err := s.answerQuestions(ctx)
		if err != nil {
			return nil, fmt.Errorf("micro service %s: %w", event.StatusService, err)
		}
		context.AfterFunc(ctx, stop)
		return &loop.Loop{Bus: c.Bus, Service: name.ServiceStatus, Handle: s.handle, Watch: s.hold}, nil
	})
}

type svc struct {
	bus     *events.Bus
	kube    *kube.Client
	metrics *metrics
}

// handle brings everything outside up to date with the states of one tenant.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
	if t.Key.Kind == event.DataStores {
		return s.dataStore(ctx, t)
	}
	gone, err := s.removed(ctx, t)
	if err != nil {
		return err
	}
	if gone || t.Tenant == nil {
		t.NoAlarm()
		s.metrics.forget(t.Key)
		return nil
	}

	if t.Tenant.Paused {
		return s.paused(ctx, t)
	}

	in, err := s.read(ctx, t)
	if err != nil {
		return err
	}
	known := in.Previous.Phase != ""
	if !known {
		was, err := s.object(ctx, t)
		if err != nil {
			return err
		}
		in.Previous = seed(was)
	}
	now := time.Now()
	status, next := Compute(t.Tenant, in, now)
	if (!known || in.Previous.Phase == PhasePaused) && in.rebuilding(next) && !waitedLong(t.Own(), now) {
		// NATS was lost: the tenant was Ready and nobody has said otherwise, so the status stays until all have looked.
		t.Alarm(lookSlow, loop.Wake{Kind: wakeLook})
		return t.Wait(ctx, state.Wait{Reason: reason.StatesLost, Text: "the services to look at the tenant again, whose state was lost"})
	}

	current, age := false, time.Duration(0)
	if own := t.Own(); own != nil {
		current, age = own.Generation == t.Generation, now.Sub(own.UpdatedAt)
	}
	if next.Applied, err = checksum(status); err != nil {
		return err
	}
	same := in.changed(t, next) == nil && next.Applied == in.Previous.Applied
	look := lookAt(in.Previous, next, current, same, t.Woken(wakeLook), age)
	if look.Later {
		s.metrics.note(t.Key, next.Phase)
		t.Alarm(look.Again, loop.Wake{Kind: wakeLook})
		return nil
	}
	if err := s.write(ctx, t, in, status, next); err != nil {
		return err
	}
	if look.Again > 0 {
		t.Alarm(look.Again, loop.Wake{Kind: wakeLook})
	} else {
		t.NoAlarm()
	}
	return nil
}

// rebuildFor bounds how long a status stays only because services have not looked at the tenant again.
const rebuildFor = time.Minute

func waitedLong(own *state.State, now time.Time) bool {
	return own != nil && own.Wait.Waits() && now.Sub(own.UpdatedAt) > rebuildFor
}

// checksum of a status as the API gets it.
func checksum(status v1alpha1.TenantControlPlaneStatus) (string, error) {
	body, err := json.Marshal(status)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16]), nil
}

// write makes the object's status so, and then tells.
func (s *svc) write(ctx context.Context, t *loop.Turn, in States, status v1alpha1.TenantControlPlaneStatus, next state.Status) (err error) {
	if next.Applied, err = checksum(status); err != nil {
		return err
	}
	if next.Applied != in.Previous.Applied {
		err := s.kube.ApplyStatus(ctx, kube.TenantControlPlanes, t.Key.Namespace, t.Key.Name, status)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("status of %s: %w", t.Key, err)
		}
	}
	return s.tell(ctx, t, in, next, in.changed(t, next))
}

// read gathers what the services know of the tenant.
func (s *svc) read(ctx context.Context, t *loop.Turn) (States, error) {
	in := States{UID: t.UID, Generation: t.Generation}
	if err := t.OwnData(&in.Previous); err != nil {
		in.Previous = state.Status{} // ours to write anew
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { in.Certs.State, err = t.Read(ctx, name.ServiceCerts, &in.Certs.Data); return err })
	g.Go(func() (err error) {
		in.Datastore.State, err = t.Read(ctx, name.ServiceDatastore, &in.Datastore.Data)
		return err
	})
	g.Go(func() (err error) {
		in.Workload.State, err = t.Read(ctx, name.ServiceWorkload, &in.Workload.Data)
		return err
	})
	g.Go(func() (err error) {
		in.Addons.State, err = t.Read(ctx, name.ServiceAddons, &in.Addons.Data)
		return err
	})
	return in, g.Wait()
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

// tell publishes what portals see when it changed, and writes the own state last: until then everything is done again.
func (s *svc) tell(ctx context.Context, t *loop.Turn, in States, next state.Status, changed *event.StatusChanged) error {
	out := loop.Outcome{Step: event.Changed, Data: next}
	if changed != nil {
		payload := event.Marshal(changed)
		// Not the content alone: a status that comes back within the server's memory for repeats is news.
		since := ""
		if own := t.Own(); own != nil {
			since = own.UpdatedAt.Format(time.RFC3339Nano)
		}
		sum := sha256.Sum256(payload)
		id := events.ID(t.UID, strconv.FormatInt(t.Generation, 10), "portal", since, hex.EncodeToString(sum[:]))
		if err := s.publish(ctx, t.Key, id, event.Changed, t.Generation, t.Tenant.TraceParent, payload, 0); err != nil {
			return err
		}
		out.Facts = []loop.Tell{{What: event.Changed, Data: payload}}
	}
	err := t.Done(ctx, out)
	if errors.Is(err, events.ErrNotFound) {
		return nil // the bucket went meanwhile: intake says what comes next
	}
	if err != nil {
		return err
	}
	if next.ReadyGeneration != in.Previous.ReadyGeneration {
		s.metrics.timeToReady.Observe(next.ReadyAt.Sub(t.Tenant.AcceptedAt).Seconds())
	}
	s.metrics.note(t.Key, next.Phase)
	return nil
}
