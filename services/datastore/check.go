package datastore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// check looks at a DataStore and publishes the facts checked and measured unless its status says the same already. It wakes on
// changes of the DataStore, on the first failure of anybody who uses it, and now and then. What was told and isn't in the status is
// told again at the daily look, for the fact may be lost.
func (s *svc) check(ctx context.Context, t *loop.Turn) error {
	st := s.stores.Get(t.Key.Name)
	// Turns come seldom, and what is reported must be what is.
	st.Invalidate()
	object, opened, err := st.Load(ctx)
	if err != nil {
		return err
	}
	if errors.Is(opened, store.ErrNoDataStore) {
		s.stores.Forget(st)
		return nil
	}
	if now := s.now(); st.Paused(now) {
		if until := st.PausedUntil(now); !until.IsZero() {
			t.Alarm(until.Sub(now), loop.Wake{Kind: store.WakeDataStore})
		}
		return nil
	}
	var pinged error
	if opened == nil {
		pinged = st.Ping(ctx)
		if errors.Is(pinged, context.Canceled) || errors.Is(pinged, fence.ErrFenced) {
			return pinged
		}
	}
	r := store.ReadinessOf(opened, pinged)
	if r.Usable {
		why, message := st.Warning(ctx)
		if why != "" {
			r.Reason, r.Message = why, message
		}
		st.NoteWarning(why)
	}
	if err := s.reportReadiness(ctx, t, st, object, r); err != nil {
		return err
	}
	if err := s.reportUsage(ctx, t, st, object); err != nil {
		return err
	}
	switch {
	case errors.As(opened, new(*store.UnsupportedError)):
		return nil // the kind of a DataStore can't change
	case opened != nil:
		return &intent.Unavailable{Dependency: st.Dependency(), Err: opened}
	case pinged != nil:
		return pinged
	}
	st.WakeWaiting()
	return nil
}

// reportReadiness publishes the fact checked unless the DataStore's status says the same already.
func (s *svc) reportReadiness(ctx context.Context, t *loop.Turn, st *store.Store, object *v1alpha1.DataStore, r store.Readiness) error {
	if r.IsIn(object) {
		return nil
	}
	// Equal findings about equal objects are one fact, whoever finds them and how often. The version is in it so
	// that a finding which comes back after another is a fact of its own.
	id := events.ID(string(object.UID), object.ResourceVersion, event.Checked, strconv.FormatBool(r.Usable), r.Reason)
	return s.tellOnce(ctx, t, st, object, id, event.Checked, event.DatastoreChecked{
		About:  event.About{Name: object.Name, UID: string(object.UID), Generation: object.Generation},
		Driver: string(object.Spec.Driver), Ready: r.Usable, Reason: r.Reason, Message: r.Message,
	})
}

// reportUsage publishes the fact measured about a DataStore unless its status says much the same already.
func (s *svc) reportUsage(ctx context.Context, t *loop.Turn, st *store.Store, object *v1alpha1.DataStore) error {
	u := st.Usage()
	if !store.UsageChanged(object.Status.Usage, u) {
		return nil
	}
	id := events.ID(string(object.UID), event.Measured, u.MeasuredAt.Format(time.RFC3339))
	return s.tellOnce(ctx, t, st, object, id, event.Measured, event.DatastoreMeasured{
		About:     event.About{Name: object.Name, UID: string(object.UID), Generation: object.Generation},
		DataStore: object.Name, Bytes: u.Bytes, Keys: u.Keys, LatencyMilliseconds: u.LatencyMilliseconds, MeasuredAt: u.MeasuredAt.Time,
	})
}

// tellOnce publishes what was found about a DataStore and isn't in its status, unless the last that was told has the same id. At the
// daily look that one is lost, or the status would say so: it is told again, by another id, for a repeat might be dropped.
func (s *svc) tellOnce(ctx context.Context, t *loop.Turn, st *store.Store, object *v1alpha1.DataStore, id, what string, data any) error {
	changed := st.NoteFact(what, id)
	switch {
	case t.Due():
		id = events.ID(id, s.now().Format(time.RFC3339Nano))
	case !changed:
		return nil
	}
	err := s.bus.Tell(ctx, t.Key, object.Generation, id, what, data)
	if err != nil {
		st.NoteFact(what, "")
	}
	return err
}
