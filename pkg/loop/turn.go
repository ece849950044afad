package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

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
	revision uint64          // of own
	owed     bool            // facts of own may lack in the stream
	ended    []jetstream.Msg // the commands that have ended
	first    bool            // the first meeting with the object since a start or a takeover
}

// load reads spec and own state, and publishes facts that the own state still owes. again says that an event of the turn was
// delivered before: whoever worked on it may have died between the write and the publish.
func (t *Turn) load(ctx context.Context, again bool) error {
	if !t.Key.IsTenant() || !t.Key.Valid() {
		return nil
	}
	t.first = t.loop.unmet(t.Key)
	spec, err := t.readStates(ctx)
	if err != nil {
		return err
	}
	if spec != nil {
		t.Tenant = &state.Tenant{}
		if err := json.Unmarshal(spec.Data, t.Tenant); err != nil {
			return &intent.Permanent{Reason: reason.InvalidState, Message: "the tenant's spec in its bucket is not readable", Err: err}
		}
		t.UID, t.Generation = spec.UID, spec.Generation
		if t.own != nil && t.own.UID != t.UID {
			// Left by an earlier tenant of that name: start anew, on top of its revision.
			t.own = nil
		}
	}
	return t.payOwed(ctx, again)
}

// readStates reads the own state into the turn and returns the spec's, nil when there is none.
func (t *Turn) readStates(ctx context.Context) (spec *state.State, err error) {
	key := t.loop.stateKey()
	var g errgroup.Group
	if key != events.KeySpec {
		g.Go(func() (err error) {
			spec, _, err = t.readState(ctx, name.ServiceIntake)
			return ignoreNotFound(err)
		})
	}
	if t.commandsOnly() {
		t.own, t.revision, err = t.loop.Bus.PeekState(ctx, t.Key, key)
	} else {
		t.own, t.revision, err = t.readState(ctx, t.loop.Service)
	}
	if err := cmp.Or(ignoreNotFound(err), g.Wait()); err != nil {
		return nil, err
	}
	if key == events.KeySpec {
		spec = t.own
	}
	return spec, nil
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

// OwnData decodes the data of the own state into v; v is left alone when there is none.
func (t *Turn) OwnData(v any) error {
	if t.own == nil || len(t.own.Data) == 0 {
		return nil
	}
	return json.Unmarshal(t.own.Data, v)
}

// Read decodes another service's data into v and returns its state; nil when there is none yet or it is an earlier tenant's of
// that name.
func (t *Turn) Read(ctx context.Context, service string, v any) (*state.State, error) {
	s, _, err := t.readState(ctx, service)
	if errors.Is(err, events.ErrNotFound) {
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
