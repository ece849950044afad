package status

// The last word about each tenant on stoker.status.<namespace>.<name>, for portals, and the end of a tenant. Wakes on
// intake.removed and intake.released; tells status.deleted.

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// keepDeleted is how long the last word about a deleted tenant stays on its subject.
const keepDeleted = 24 * time.Hour

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
func (s *svc) publish(ctx context.Context, key events.Key, id, what string, generation int64, trace string, payload json.RawMessage, ttl time.Duration) error {
	if err := fence.Check(ctx); err != nil {
		return err
	}
	e := s.bus.NewEvent(key, id, event.FactType(name.ServiceStatus, what), payload, time.Now())
	e.SetExtension(events.ExtSequence, strconv.FormatInt(generation, 10))
	if trace != "" {
		e.SetExtension(events.ExtTraceParent, trace)
	}
	if ttl == 0 {
		_, err := s.bus.Publish(ctx, key.StatusSubject(), e)
		return err
	}
	msg := events.Encode(key.StatusSubject(), e)
	msg.Header.Set(headerTTL, ttl.String())
	_, err := s.bus.JetStream().PublishMsg(ctx, msg)
	return err
}

// removed announces the end of a tenant. gone says that nothing is left to compute a status for.
func (s *svc) removed(ctx context.Context, t *loop.Turn) (gone bool, err error) {
	for _, e := range t.Events {
		if e.Err != nil || e.Service != name.ServiceIntake {
			continue
		}
		if e.What == event.Released && t.Tenant == nil { // else it has come back
			if err := s.released(ctx, t, e); err != nil {
				return false, err
			}
			gone = true
		}
		if e.What != event.Removed {
			continue
		}
		var r event.Removals
		if err := json.Unmarshal(e.Data(), &r); err != nil {
			return false, &intent.Permanent{Reason: "InvalidPayload", Message: "intake.removed of " + t.Key.String() + " is not readable", Err: err}
		}
		last := event.StatusChanged{
			About: r.About, Phase: PhaseDeleted, Reason: PhaseDeleted, Message: "nothing of the tenant is left", Removed: r.Removed, Left: r.Left,
		}
		if len(r.Left) > 0 {
			last.Message = "the tenant is gone, but not all that was made for it could be removed"
		}
		payload := event.Marshal(last)
		if err := s.bus.Tell(ctx, t.Key, r.Generation, events.ID(r.UID, event.Deleted), event.Deleted, payload); err != nil {
			return false, err
		}
		if t.Tenant != nil && t.UID != r.UID {
			continue // another tenant has the name by now, and the subject
		}
		if err := s.publish(ctx, t.Key, events.ID(r.UID, event.Deleted, "portal"), event.Deleted, r.Generation, "", payload, keepDeleted); err != nil {
			return false, err
		}
		s.metrics.forget(t.Key)
		gone = true
	}
	return gone, nil
}

// released tells portals that a tenant is another installation's now.
func (s *svc) released(ctx context.Context, t *loop.Turn, e loop.Event) error {
	var r event.IntakeReleased
	if err := json.Unmarshal(e.Data(), &r); err != nil {
		return &intent.Permanent{Reason: "InvalidPayload", Message: "intake.released of " + t.Key.String() + " is not readable", Err: err}
	}
	last := event.StatusChanged{
		About: r.About, Phase: PhaseReleased, Reason: PhaseReleased,
		Message: "the object belongs to another installation now (label " + name.LabelWatchFilter + "), which goes on with it",
	}
	s.metrics.forget(t.Key)
	return s.publish(ctx, t.Key, events.ID(e.ID(), "portal"), event.Changed, r.Generation, "", event.Marshal(last), keepDeleted)
}
