package datastore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// check looks at a DataStore and publishes the facts checked and measured unless its status says the same already. It wakes on
// changes of the DataStore, on the first failure of anybody who uses it, and now and then. What was told and isn't in the status is
// told again at the daily look, for the fact may be lost.
func (s *svc) check(ctx context.Context, t *loop.Turn) error {
	st := s.stores.get(t.Key.Name)
	// Turns come seldom, and what is reported must be what is.
	st.invalidate()
	object, opened, err := st.load(ctx)
	if err != nil {
		return err
	}
	if errors.Is(opened, errNoDataStore) {
		s.stores.forget(st)
		return nil
	}
	if now := s.now(); st.paused(now) {
		if until := st.pausedUntil(now); !until.IsZero() {
			t.Alarm(until.Sub(now), loop.Wake{Kind: wakeDataStore})
		}
		return nil
	}
	var pinged error
	if opened == nil {
		pinged = st.ping(ctx)
		if errors.Is(pinged, context.Canceled) || errors.Is(pinged, fence.ErrFenced) {
			return pinged
		}
	}
	r := readinessOf(opened, pinged)
	if r.ready {
		why, message := st.warning(ctx)
		if why != "" {
			r.reason, r.message = why, message
		}
		st.noteWarning(why)
	}
	if err := s.reportReadiness(ctx, t, st, object, r); err != nil {
		return err
	}
	if err := s.reportUsage(ctx, t, st, object); err != nil {
		return err
	}
	switch {
	case errors.As(opened, new(*unsupportedError)):
		return nil // the kind of a DataStore can't change
	case opened != nil:
		return &intent.Unavailable{Dependency: st.dependency(), Err: opened}
	case pinged != nil:
		return pinged
	}
	st.wakeWaiting()
	return nil
}

// reportReadiness publishes the fact checked unless the DataStore's status says the same already.
func (s *svc) reportReadiness(ctx context.Context, t *loop.Turn, st *store, object *v1alpha1.DataStore, r readiness) error {
	if r.isIn(object) {
		return nil
	}
	// Equal findings about equal objects are one fact, whoever finds them and how often. The version is in it so
	// that a finding which comes back after another is a fact of its own.
	id := events.ID(string(object.UID), object.ResourceVersion, event.Checked, strconv.FormatBool(r.ready), r.reason)
	return s.tellOnce(ctx, t, st, object, id, event.Checked, event.DatastoreChecked{
		About:  event.About{Name: object.Name, UID: string(object.UID), Generation: object.Generation},
		Driver: string(object.Spec.Driver), Ready: r.ready, Reason: r.reason, Message: r.message,
	})
}

// reportUsage publishes the fact measured about a DataStore unless its status says much the same already.
func (s *svc) reportUsage(ctx context.Context, t *loop.Turn, st *store, object *v1alpha1.DataStore) error {
	u := st.usage()
	if !usageChanged(object.Status.Usage, u) {
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
func (s *svc) tellOnce(ctx context.Context, t *loop.Turn, st *store, object *v1alpha1.DataStore, id, what string, data any) error {
	changed := st.noteFact(what, id)
	switch {
	case t.Due():
		id = events.ID(id, s.now().Format(time.RFC3339Nano))
	case !changed:
		return nil
	}
	err := s.bus.Tell(ctx, t.Key, object.Generation, id, what, data)
	if err != nil {
		st.noteFact(what, "")
	}
	return err
}

// readiness is whether a DataStore can be used, and why not, or what should be put right all the same.
type readiness struct {
	ready           bool
	reason, message string // of the condition Valid
}

// readinessOf is the readiness of a DataStore by what opening it and pinging its database came to.
func readinessOf(opened, pinged error) readiness {
	var bad *driver.ConfigError
	var no *unsupportedError
	var foreign *foreignSecretError
	switch {
	case errors.As(opened, &no):
		return readiness{false, reason.DriverNotSupported, no.Error()}
	case errors.As(opened, &foreign):
		return readiness{false, reason.ForeignSecret, foreign.Error()}
	case errors.As(opened, &bad) && bad.Part == driver.PartBasicAuth:
		return readiness{false, v1alpha1.DataStoreReasonBasicAuthFailed, bad.Error()}
	case errors.As(opened, &bad):
		return readiness{false, v1alpha1.DataStoreReasonTLSConfigFailed, bad.Error()}
	case pinged != nil:
		return readiness{false, reason.Unreachable, pinged.Error()}
	}
	return readiness{true, v1alpha1.DataStoreReasonValid, "the DataStore answers and all references are valid"}
}

// isIn reports whether the status of a DataStore says so already.
func (r readiness) isIn(object *v1alpha1.DataStore) bool {
	if object.Status.Ready != r.ready || object.Status.ObservedGeneration != object.Generation {
		return false
	}
	return slices.ContainsFunc(object.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.DataStoreConditionValid && c.Reason == r.reason
	})
}
