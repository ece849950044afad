package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// Turn is what a handler gets: the object, the events since its last turn, the desired state, its own state. A Turn belongs to
// one call of the handler and is not safe for concurrent use.
type Turn struct {
	Key events.Key
	// Events since the last turn that succeeded, oldest first; empty when only a watch or an alarm woke the service.
	Events []Event
	// Wakes since the last turn that succeeded, in no order.
	Wakes []Wake
	// Tenant is the desired state, nil when the tenant has none (no bucket yet, or no more) or the key is no tenant's.
	Tenant *state.Tenant
	// UID and Generation of Tenant.
	UID        string
	Generation int64

	loop     *Loop
	attempt  int
	own      *state.State
	revision uint64 // of own, also of one that can't be read
	// unreadable is true when there is an own state that can't be read; own is then nil.
	unreadable bool
	owed       bool        // facts of own may lack in the stream
	ended      []*nats.Msg // the commands that have ended
	first      bool        // the first meeting with the object since a start or a takeover
}

// load reads spec and own state, and publishes facts that the own state still owes. again says that an event of the turn was
// delivered before: whoever worked on it may have died between the write and the publish.
func (t *Turn) load(ctx context.Context, again bool) error {
	if !t.Key.IsTenant() || !t.Key.Valid() {
		return nil
	}
	t.first = t.loop.unmet(t.Key)
	spec, revision, err := t.readStates(ctx)
	if err != nil {
		return err
	}
	if spec != nil {
		t.Tenant = &state.Tenant{}
		if err := json.Unmarshal(spec.Data, t.Tenant); err != nil {
			t.Tenant = nil
			return t.specUnreadable(ctx, revision, err)
		}
		t.UID, t.Generation = spec.UID, spec.Generation
		if t.own != nil && t.own.UID != t.UID {
			// Left by an earlier tenant of that name: start anew, on top of its revision.
			t.own = nil
		}
	}
	return t.payOwed(ctx, again)
}

// readStates reads the own state into the turn and returns the spec's with its revision, nil when there is none.
func (t *Turn) readStates(ctx context.Context) (spec *state.State, revision uint64, err error) {
	key := t.loop.stateKey()
	var g errgroup.Group
	if key != events.KeySpec {
		g.Go(func() (err error) {
			spec, revision, err = t.readState(ctx, name.ServiceIntake)
			return ignoreNotFound(err)
		})
	}
	if t.commandsOnly() {
		t.own, t.revision, err = t.loop.Bus.PeekState(ctx, t.Key, key)
	} else {
		t.own, t.revision, err = t.readState(ctx, t.loop.Service)
	}
	if errors.Is(err, events.ErrUnreadable) {
		t.ownUnreadable(err)
		err = nil
	}
	specErr := g.Wait()
	if err := ignoreNotFound(err); err != nil {
		return nil, 0, err
	}
	if spec != nil && t.own != nil && t.own.UID == spec.UID && t.own.Generation > spec.Generation {
		// The own state was written for a later spec than the one that was read.
		spec, revision, specErr = t.loop.Bus.ReadStateOfLeader(ctx, t.Key, events.KeySpec)
		specErr = ignoreNotFound(specErr)
	}
	if errors.Is(specErr, events.ErrUnreadable) {
		return nil, 0, t.specUnreadable(ctx, revision, specErr)
	}
	if specErr != nil {
		return nil, 0, specErr
	}
	if key == events.KeySpec {
		spec = t.own
	}
	return spec, revision, nil
}

// ownUnreadable makes the turn begin without an own state, on top of the revision of the one that can't be read.
func (t *Turn) ownUnreadable(err error) {
	t.loop.log.Error("own state is not readable and is made anew", "tenant", t.Key.String(), "error", err)
	t.own, t.unreadable = nil, true
}

// Unreadable reports whether there was an own state that can't be read: the turn has none, and its next write replaces it.
func (t *Turn) Unreadable() bool { return t.unreadable }

// specUnreadable has intake write the spec anew: to intake itself it is none; the others tell it by the fact failed, and wait.
func (t *Turn) specUnreadable(ctx context.Context, revision uint64, err error) error {
	if t.loop.stateKey() == events.KeySpec {
		t.ownUnreadable(err)
		return nil
	}
	about := t.About()
	if t.own != nil {
		about.UID, about.Generation = t.own.UID, t.own.Generation
	}
	const message = "the tenant's spec in its bucket is not readable; intake writes it anew"
	failed := event.StepFailed{About: about, Reason: reason.InvalidState, Message: message, Attempts: t.attempt + 1, Retrying: true}
	id := events.ID("unreadable", t.loop.Service, t.Key.String(), strconv.FormatUint(revision, 10)) // a repeat is dropped for two minutes
	if err := t.loop.Bus.Tell(ctx, t.Key, about.Generation, id, event.Failed, failed); err != nil {
		return err
	}
	return &intent.Unavailable{Err: fmt.Errorf("%s: %w", message, err)}
}

// commandsOnly reports whether a turn is about commands and nothing else. A command changes the object first and the state
// after it, so it needs no certain answer whether there is a state: should there be one in a bucket that didn't answer yet, the
// write is refused as stale and the turn repeated. A new tenant is spared the question whether its bucket is really missing.
func (t *Turn) commandsOnly() bool {
	return len(t.Events) > 0 && len(t.Wakes) == 0 && !slices.ContainsFunc(t.Events, func(e Event) bool { return !e.IsCommand() })
}

// Attempt counts the failures of this turn so far; 0 at first.
func (t *Turn) Attempt() int { return t.attempt }

// About starts the payload of a fact about this tenant.
func (t *Turn) About() event.About {
	a := event.About{Namespace: t.Key.Namespace, Name: t.Key.Name, UID: t.UID, Generation: t.Generation}
	if a.Namespace == events.ClusterScoped {
		a.Namespace = ""
	}
	return a
}

// Own is the service's state as it was read or last written, nil when there is none.
func (t *Turn) Own() *state.State { return t.own }

// OwnData decodes the data of the own state into v, a pointer; v is left alone when there is none. Data that can't be decoded makes
// the own state count as none.
func (t *Turn) OwnData(v any) error {
	if t.own == nil || len(t.own.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(t.own.Data, v); err != nil {
		t.ownUnreadable(err)
		reflect.ValueOf(v).Elem().SetZero()
	}
	return nil
}

// Read decodes another service's data into v and returns its state; nil when there is none yet, it can't be read, or it is an earlier
// tenant's of that name.
func (t *Turn) Read(ctx context.Context, service string, v any) (*state.State, error) {
	s, _, err := t.readState(ctx, service)
	return t.decoded(service, v, s, err)
}

// ReadLatest is Read of what was written last before the call, also where servers lag. It takes longer.
func (t *Turn) ReadLatest(ctx context.Context, service string, v any) (*state.State, error) {
	s, _, err := t.loop.Bus.ReadStateOfLeader(ctx, t.Key, events.StateKey(service))
	return t.decoded(service, v, s, err)
}

func (t *Turn) decoded(service string, v any, s *state.State, err error) (*state.State, error) {
	if errors.Is(err, events.ErrNotFound) || errors.Is(err, events.ErrUnreadable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if t.UID != "" && s.UID != t.UID {
		return nil, nil
	}
	if v != nil && len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, v); err != nil {
			return nil, fmt.Errorf("state %s of %s: %w", service, t.Key, err)
		}
	}
	return s, nil
}

// Adopt makes the turn work for an object: intake calls it with what the API server says before it writes the spec. The bucket
// is made if it isn't there; one that an earlier tenant of that name left behind is replaced.
func (t *Turn) Adopt(ctx context.Context, uid string, generation int64) error {
	if t.own != nil && t.own.UID != uid {
		if err := t.loop.Bus.Forget(ctx, t.Key); err != nil {
			return err
		}
		t.own, t.revision, t.Tenant = nil, 0, nil
	}
	if t.own == nil {
		if err := t.loop.Bus.CreateBucket(ctx, t.Key); err != nil {
			return err
		}
	}
	t.UID, t.Generation = uid, generation
	return nil
}
