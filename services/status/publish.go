package status

// What is written of a computed status, in an order that makes every step safe to repeat: the object's status, the last word about
// the tenant on stoker.status.<namespace>.<name> for portals, and with the own state the fact status.changed.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// headerTTL limits how long the server keeps one message.
const headerTTL = "Nats-TTL"

// Reply is what portals are told of a status.
func Reply(about event.About, tenant *state.Tenant, s state.Status) event.StatusChanged {
	c := event.StatusChanged{
		About: about, Phase: s.Phase, Ready: s.Ready, Reason: s.Reason, Message: s.Message, Version: s.Version, Endpoint: s.Endpoint,
	}
	if s.Ready {
		c.Kubeconfig = name.AdminKubeconfig(about.Name)
		if s.ReadyAt.After(tenant.AcceptedAt) {
			c.SecondsToReady = s.ReadyAt.Sub(tenant.AcceptedAt).Round(time.Millisecond).Seconds()
		}
	}
	return c
}

// changed returns what is to be told, nil when portals have heard it all.
func (in States) changed(t *loop.Turn, next state.Status) *event.StatusChanged {
	own, prev := t.Own(), in.Previous
	if own != nil && len(own.Data) > 0 && own.Generation == t.Generation && prev.Phase == next.Phase && prev.Ready == next.Ready &&
		prev.Reason == next.Reason && prev.Message == next.Message && prev.Version == next.Version && prev.Endpoint == next.Endpoint {
		return nil
	}
	c := Reply(t.About(), t.Tenant, next)
	return &c
}

// publish puts an event on the tenant's status subject; ttl 0 keeps it until the next one.
func (s *svc) publish(
	ctx context.Context, key events.Key, id, what string, generation int64, trace string, payload json.RawMessage, ttl time.Duration,
) error {
	if err := fence.Check(ctx); err != nil {
		return err
	}
	e := s.lastWord(key, id, what, generation, trace, payload)
	if ttl == 0 {
		_, err := s.bus.Publish(ctx, key.StatusSubject(), e)
		return err
	}
	msg := events.Encode(key.StatusSubject(), e)
	msg.Header.Set(headerTTL, ttl.String())
	_, err := s.bus.JetStream().PublishMsg(ctx, msg)
	return err
}

// lastWord is what is put on the tenant's status subject.
func (s *svc) lastWord(key events.Key, id, what string, generation int64, trace string, payload json.RawMessage) ce.Event {
	e := s.bus.NewEvent(key, id, event.FactType(name.ServiceStatus, what), payload, time.Now())
	e.SetExtension(events.ExtSequence, strconv.FormatInt(generation, 10))
	if trace != "" {
		e.SetExtension(events.ExtTraceParent, trace)
	}
	return e
}

// refill publishes the last word about a tenant again if its subject has none: somebody purged the stream.
func (s *svc) refill(ctx context.Context, t *loop.Turn, last state.Status) error {
	id := events.ID(t.UID, strconv.FormatInt(t.Generation, 10), "portal again", time.Now().Format(time.RFC3339Nano))
	e := s.lastWord(t.Key, id, event.Changed, t.Generation, t.Tenant.TraceParent, event.Marshal(Reply(t.About(), t.Tenant, last)))
	_, err := s.bus.PublishFirst(ctx, t.Key.StatusSubject(), e)
	return err
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

// write makes the object's status so, and then publishes and keeps it.
func (s *svc) write(ctx context.Context, t *loop.Turn, in States, status v1alpha1.TenantControlPlaneStatus, next state.Status) (err error) {
	if next.Applied, err = checksum(status); err != nil {
		return err
	}
	if next.Applied != in.Previous.Applied {
		o := &metav1.ObjectMeta{Namespace: t.Key.Namespace, Name: t.Key.Name, UID: types.UID(t.UID)}
		fields, err := fieldsOf(status)
		if err != nil {
			return err
		}
		err = s.kube.ApplyStatus(ctx, kube.TenantControlPlanes, o, fields)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("status of %s: %w", t.Key, err)
		}
	}
	if err := s.finish(ctx, t, in, next, in.changed(t, next)); err != nil {
		return err
	}
	s.metrics.note(t.Key, tenantOf(t.Tenant, status, next))
	return nil
}

// fieldsOf are a status as it is applied: without load balancers that say nothing. Of an object that is applied empty, and had something in
// it the last time, server-side apply makes null, which the definition refuses.
func fieldsOf(status v1alpha1.TenantControlPlaneStatus) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil, fmt.Errorf("status as fields: %w", err)
	}
	dropEmptyBalancers(fields)
	return fields, nil
}

func dropEmptyBalancers(fields map[string]any) {
	for key, value := range fields {
		if inner, ok := value.(map[string]any); !ok {
			continue
		} else if key == "loadBalancer" && len(inner) == 0 {
			delete(fields, key)
		} else {
			dropEmptyBalancers(inner)
		}
	}
}

// finish publishes what portals see when it changed, and writes the own state last: until then everything is done again.
func (s *svc) finish(ctx context.Context, t *loop.Turn, in States, next state.Status, changed *event.StatusChanged) error {
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
	} else if t.Due() {
		if err := s.refill(ctx, t, next); err != nil {
			return err
		}
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
	return nil
}
