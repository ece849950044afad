package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// With several NATS servers, any of them may answer a question about a state, also one that lags: it may say an old revision, or that
// there is none. Acting on that loses the event that told of the new one. So a turn asks the stream's leader, who knows the last, when
// it meets the object for the first time and when one of its events is newer than what it was told.

// leaderLags is how young an event must be for a turn to wait for the state behind it, if even the leader doesn't have that: one that
// was just elected may not have caught up. Later, what the leader says is so, for a state can be lost when a fact isn't.
const leaderLags = 10 * time.Second

// readState reads a service's state (intake's is the spec). Errors are those of [events.Bus.ReadState], and [intent.ErrStale] while the
// leader is behind an event of the turn.
func (t *Turn) readState(ctx context.Context, service string) (*state.State, uint64, error) {
	bus, key := t.loop.Bus, events.StateKey(service)
	if !t.first {
		s, revision, err := bus.ReadState(ctx, t.Key, key)
		if ignoreNotFound(err) != nil || t.newer(service, s) == nil {
			return s, revision, err
		}
	}
	s, revision, err := bus.ReadStateOfLeader(ctx, t.Key, key)
	if ignoreNotFound(err) != nil {
		return nil, revision, err
	}
	if e := t.newer(service, s); e != nil && time.Since(e.Time()).Abs() < leaderLags {
		t.loop.log.Debug("state is behind an event, reading it again", "tenant", t.Key.String(), "state", service, "event", e.ID())
		return nil, 0, fmt.Errorf("%w: state of %s is older than event %s", intent.ErrStale, service, e.ID())
	}
	return s, revision, err
}

// newer returns an event of the turn that proves that a service's state, nil for none, isn't the last; nil when none does. What is said
// of a tenant whose end is among the events proves nothing.
func (t *Turn) newer(service string, s *state.State) *Event {
	var ended []string
	for _, e := range t.Events {
		if e.endsTenant() {
			ended = append(ended, aboutOf(e).UID)
		}
	}
	i := slices.IndexFunc(t.Events, func(e Event) bool {
		about := aboutOf(e)
		switch {
		case about.UID == "":
			return false
		case service == name.ServiceIntake && e.endsTenant() && s != nil && about.UID == s.UID: // it may have come back since
			return e.Time().After(s.UpdatedAt) && !s.UpdatedAt.IsZero()
		case slices.Contains(ended, about.UID):
			return false
		}
		if service == name.ServiceIntake {
			return newerThanSpec(e, about, s)
		}
		return e.Service == service && announcesState(e) && newerThanState(e, about, s)
	})
	if i < 0 {
		return nil
	}
	return &t.Events[i]
}

// endsTenant reports whether an event is the fact that a tenant's states are gone.
func (e Event) endsTenant() bool {
	return e.Service == name.ServiceIntake && (e.What == event.Removed || e.What == event.Released)
}

// aboutOf says which object a fact is about; zero for a command, and for what can't be read.
func aboutOf(e Event) (about event.About) {
	if !e.IsCommand() && e.Err == nil {
		_ = json.Unmarshal(e.Data(), &about)
	}
	return about
}

// newerThanSpec reports whether a fact, by whatever service, says more of a tenant than its spec does: any is told after the spec of
// its generation was written, and what is removed is removed because the spec says so.
func newerThanSpec(e Event, about event.About, spec *state.State) bool {
	switch {
	case e.Service == name.ServiceIntake && announcesState(e) && newerThanState(e, about, spec), spec == nil:
		return true
	case about.UID != spec.UID:
		return e.Time().After(spec.UpdatedAt) && !spec.UpdatedAt.IsZero()
	case about.Generation > spec.Generation:
		return true
	case e.What != event.Removed:
		return false
	}
	var tenant struct {
		Deleting bool `json:"deleting"`
	}
	return json.Unmarshal(spec.Data, &tenant) == nil && !tenant.Deleting
}

// newerThanState reports whether a fact was told with a later write than that of a state of its service.
func newerThanState(e Event, about event.About, s *state.State) bool {
	switch {
	case s == nil:
		return true
	case about.UID != s.UID:
		return e.Time().After(s.UpdatedAt) && !s.UpdatedAt.IsZero()
	case about.Generation > s.Generation:
		return true
	}
	return about.Generation == s.Generation && e.Time().After(s.UpdatedAt) && !s.UpdatedAt.IsZero()
}

// announcesState reports whether a fact was told with the write of a state. Timers are not, and of intake's facts only two are.
func announcesState(e Event) bool {
	if e.Service == name.ServiceIntake {
		return e.What == event.Accepted || e.What == event.Deleting || e.What == event.Failed
	}
	return e.What != event.Due
}

// ignoreNotFound takes the absence of a state for no error.
func ignoreNotFound(err error) error {
	if errors.Is(err, events.ErrNotFound) {
		return nil
	}
	return err
}
