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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, cfg service.Config) error {
	return service.Run(ctx, cfg, func(c *service.Clients) (*events.Loop, error) {
		s := &svc{bus: c.Bus, kube: c.Kube, metrics: newMetrics(c.Metrics)}
		stop, err := s.answerQuestions(ctx)
		if err != nil {
			return nil, fmt.Errorf("micro service %s: %w", event.StatusService, err)
		}
		context.AfterFunc(ctx, stop)
		return &events.Loop{Bus: c.Bus, Service: name.ServiceStatus, Handle: s.handle, Watch: s.hold}, nil
	})
}

type svc struct {
	bus     *events.Bus
	kube    *kube.Client
	metrics *metrics
}

// handle brings everything outside up to date with the states of one tenant.
func (s *svc) handle(ctx context.Context, t *events.Turn) error {
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

	in, err := s.read(ctx, t)
	if err != nil {
		return err
	}
	known := in.Previous.Phase != ""
	if !known {
		if in.Previous, err = s.seed(ctx, t); err != nil {
			return err
		}
	}
	now := time.Now()
	status, next := Compute(t.Tenant, in, now)
	if !known && in.rebuilding(next) {
		// NATS was lost: the tenant was Ready and nobody has said otherwise, so the status stays until all have looked.
		t.Alarm(lookSlow, wakeLook)
		return t.Wait(ctx, "the services to look at the tenant again, whose state was lost")
	}

	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	next.Applied = hex.EncodeToString(sum[:16])
	changed := in.changed(t, next)

	current, age := false, time.Duration(0)
	if own := t.Own(); own != nil {
		current, age = own.Generation == t.Generation, now.Sub(own.UpdatedAt)
	}
	same := changed == nil && next.Applied == in.Previous.Applied
	look := lookAt(in.Previous, next, current, same, t.Woken(wakeLook), age)
	if look.Later {
		s.metrics.note(t.Key, next.Phase)
		t.Alarm(look.Again, wakeLook)
		return nil
	}
	if next.Applied != in.Previous.Applied {
		err := s.kube.ApplyStatus(ctx, kube.TenantControlPlanes, t.Key.Namespace, t.Key.Name, json.RawMessage(body))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("status of %s: %w", t.Key, err)
		}
	}
	if err := s.tell(ctx, t, in, next, changed); err != nil {
		return err
	}
	if look.Again > 0 {
		t.Alarm(look.Again, wakeLook)
	} else {
		t.NoAlarm()
	}
	return nil
}

// read gathers what the services know of the tenant.
func (s *svc) read(ctx context.Context, t *events.Turn) (States, error) {
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

// seed makes a previous status from the object: transition times outlive the loss of NATS.
func (s *svc) seed(ctx context.Context, t *events.Turn) (state.Status, error) {
	object := struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status v1alpha1.TenantControlPlaneStatus `json:"status"`
	}{}
	err := s.kube.Get(ctx, kube.TenantControlPlanes, t.Key.Namespace, t.Key.Name, &object)
	if apierrors.IsNotFound(err) || err == nil && object.Metadata.UID != t.UID {
		return state.Status{}, nil
	}
	if err != nil {
		return state.Status{}, fmt.Errorf("status of %s: %w", t.Key, err)
	}
	prev := state.Status{Conditions: object.Status.Conditions, ObservedGeneration: object.Status.ObservedGeneration}
	if c := meta.FindStatusCondition(prev.Conditions, ConditionReady); c != nil && c.Status == metav1.ConditionTrue {
		prev.Ready, prev.ReadyGeneration = true, c.ObservedGeneration
	}
	return prev, nil
}

// tell publishes what portals see when it changed, and writes the own state last: until then everything is done again.
func (s *svc) tell(ctx context.Context, t *events.Turn, in States, next state.Status, changed *event.StatusChanged) error {
	out := events.Outcome{Step: event.Changed, Data: next}
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
		out.Facts = []events.Tell{{What: event.Changed, Data: payload}}
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
