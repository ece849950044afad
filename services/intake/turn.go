package intake

import (
	"context"
	"slices"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// handle does what each event asks for, in order, and then brings the spec in line with the object. A command is carried out also when
// a fact before it can't be worked on now: the other commands of the partition would wait with it.
func (s *svc) handle(ctx context.Context, t *loop.Turn) error {
	now, due := time.Now(), false
	var failed error
	for _, e := range t.Events {
		var err error
		switch {
		case e.IsCommand():
			err = s.command(ctx, t, e)
		case e.Service == event.RemovedBefore(name.ServiceIntake) && e.What == event.Removed:
			err = s.finish(ctx, t)
		case e.Service == name.ServiceDatastore && e.What == event.Withdrawn && e.Err == nil:
			err = s.withdrawn(ctx, t, e)
		case e.Service == name.ServiceDatastore && e.What == event.Migrated && e.Err == nil:
			err = s.migrated(ctx, t, e)
		case e.Service == name.ServiceDatastore && slices.Contains([]string{event.Restoring, event.Restored, event.NotRestored}, e.What) && e.Err == nil:
			var news bool
			news, err = replaced(t, e, now)
			due = due || news
		case e.Service == name.ServiceWorkload && e.What == event.Called && e.Err == nil:
			var woken bool
			woken, err = s.called(ctx, t, e)
			due = due || woken
		case e.Service == name.ServiceAddons && e.What == event.Idle && e.Err == nil:
			var slept bool
			slept, err = s.idle(ctx, t, e)
			due = due || slept
		case e.Service == name.ServiceIntake && e.What == event.Due && e.Err == nil: // a pause ends, or sleep does, or begins
			// By the server's clock it is time; by this one it may not be yet.
			due = true
			if e.Time().After(now) {
				now = e.Time()
			}
		}
		if err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	if due && t.Tenant != nil && t.Tenant.Deleting {
		if err := s.finish(ctx, t); err != nil { // should it have failed before
			return err
		}
	}
	switch {
	case t.Woken(wakeDaily), asked(t):
		return s.dailyLook(ctx, t, now, s.sync)
	case t.Key == admissionKey:
		return s.syncAdmission(ctx)
	case t.Key.IsTenant() && (due || t.Unreadable() || hasNews(t, now)), t.Key.Kind == event.DataStores && (due || len(t.Wakes) > 0):
		return s.sync(ctx, t, now)
	}
	return nil
}

// sync brings what there is of a tenant's object, or of a DataStore's, in line with it.
func (s *svc) sync(ctx context.Context, t *loop.Turn, now time.Time) error {
	if t.Key.IsTenant() {
		return s.syncTenant(ctx, t, now)
	}
	return s.syncDataStore(ctx, t, now)
}
