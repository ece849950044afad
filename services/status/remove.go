package status

// The end of a tenant. Wakes on intake.removed (it was deleted) and intake.released (another installation has it); tells
// status.deleted, and leaves the last word about the tenant on its status subject for a while.

import (
	"context"
	"encoding/json"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// announceEnd announces the end of a tenant, if an event of the turn tells it. gone says that nothing is left to compute a status
// for.
func (s *svc) announceEnd(ctx context.Context, t *loop.Turn) (gone bool, err error) {
	for _, e := range t.Events {
		if e.Err != nil || e.Service != name.ServiceIntake {
			continue
		}
		ended := false
		switch e.What {
		case event.Released:
			if ended = t.Tenant == nil; ended { // else it has come back
				err = s.released(ctx, t, e)
			}
		case event.Removed:
			ended, err = s.deleted(ctx, t, e)
		}
		if err != nil {
			return false, err
		}
		gone = gone || ended
	}
	return gone, nil
}

// deleted tells everybody that nothing of a tenant is left, portals only if no other tenant has its name, and with it its subject,
// by now.
func (s *svc) deleted(ctx context.Context, t *loop.Turn, e loop.Event) (gone bool, err error) {
	var r event.Removals
	if err := decodeFact(t.Key, e, &r); err != nil {
		return false, err
	}
	last := event.StatusChanged{
		About: r.About, Phase: PhaseDeleted, Reason: reason.Deleted, Message: "nothing of the tenant is left", Removed: r.Removed, Left: r.Left,
	}
	if len(r.Left) > 0 {
		last.Message = "the tenant is gone, but not all that was made for it could be removed"
	}
	payload := event.Marshal(last)
	if err := s.bus.Tell(ctx, t.Key, r.Generation, events.ID(r.UID, event.Deleted), event.Deleted, payload); err != nil {
		return false, err
	}
	if t.Tenant != nil && t.UID != r.UID {
		return false, nil
	}
	id := events.ID(r.UID, event.Deleted, "portal")
	if err := s.publish(ctx, t.Key, id, event.Deleted, r.Generation, "", payload, keepDeleted); err != nil {
		return false, err
	}
	s.metrics.forget(t.Key)
	return true, nil
}

// released tells portals that a tenant is another installation's now.
func (s *svc) released(ctx context.Context, t *loop.Turn, e loop.Event) error {
	var r event.IntakeReleased
	if err := decodeFact(t.Key, e, &r); err != nil {
		return err
	}
	last := event.StatusChanged{
		About: r.About, Phase: PhaseReleased, Reason: reason.Released,
		Message: "the object belongs to another installation now (label " + name.LabelWatchFilter + "), which goes on with it",
	}
	s.metrics.forget(t.Key)
	return s.publish(ctx, t.Key, events.ID(e.ID(), "portal"), event.Changed, r.Generation, "", event.Marshal(last), keepDeleted)
}

// decodeFact reads the payload of a fact about an object into v. [intent.Permanent] when it can't be read.
func decodeFact(key events.Key, e loop.Event, v any) error {
	if err := json.Unmarshal(e.Data(), v); err != nil {
		return &intent.Permanent{
			Reason: reason.InvalidFact, Message: e.Service + "." + e.What + " of " + key.String() + " is not readable", Err: err,
		}
	}
	return nil
}
