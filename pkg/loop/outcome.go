package loop

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// Tell is a fact to be told with a state.
type Tell struct {
	What string
	// Data is the payload, one of pkg/api/event.
	Data any
}

// Outcome is what a turn has come to.
type Outcome struct {
	// Step that was done last, and the hash of the Inputs it was computed from.
	Step, Inputs string
	// Wait is what is missing for the next step, zero for nothing.
	Wait state.Wait
	// Data is the service's part of the state.
	Data any
	// Facts announced by this write, in order.
	Facts []Tell
	// Failure is what went wrong although the turn did all it could, nil for nothing, or that something keeps drifting
	// ([Turn.Drifted]): Reason, Message and Permanent are taken from it. A new reason is told as the fact failed; the turn is not
	// repeated.
	Failure *state.Failure
}

// Done writes the own state, if it differs from what is there, and then publishes its facts. [intent.ErrStale] when somebody else
// wrote meanwhile; the loop then repeats the turn.
func (t *Turn) Done(ctx context.Context, o Outcome) error {
	s := &state.State{UID: t.UID, Generation: t.Generation, Step: o.Step, Inputs: o.Inputs, Wait: o.Wait, UpdatedAt: time.Now().UTC()}
	if o.Data != nil {
		s.Data = event.Marshal(o.Data)
	}
	if o.Failure == nil {
		o.Failure = t.Drifting()
	}
	if o.Failure != nil {
		f := state.Failure{
			Reason: o.Failure.Reason, Message: state.ClipMessage(o.Failure.Message), Permanent: o.Failure.Permanent, Since: s.UpdatedAt,
		}
		told := false
		if own := t.own; own != nil && own.Failure != nil && own.Generation == t.Generation {
			f.Since = own.Failure.Since
			told = own.Failure.Reason == f.Reason && own.Failure.Permanent == f.Permanent
		}
		s.Failure = &f
		if !told {
			o.Facts = append(slices.Clone(o.Facts), t.failed(f))
		}
	}
	return t.write(ctx, s, o.Facts)
}

// Wait notes what the service waits for and keeps the rest of its state; the fact or watch that brings it wakes the service.
func (t *Turn) Wait(ctx context.Context, w state.Wait) error {
	s := &state.State{UID: t.UID, UpdatedAt: time.Now().UTC()}
	if t.own != nil {
		*s = *t.own
	}
	s.UpdatedAt, s.Wait, s.Generation, s.Failure = time.Now().UTC(), w, t.Generation, nil
	return t.write(ctx, s, nil)
}

// fail notes a failure in the own state and tells it.
func (t *Turn) fail(ctx context.Context, f state.Failure) error {
	if t.Tenant == nil || !t.Key.IsTenant() {
		return nil
	}
	s := &state.State{UID: t.UID}
	f.Since = time.Now().UTC()
	f.Message = state.ClipMessage(f.Message)
	tells := []Tell{t.failed(f)}
	if t.own != nil {
		*s = *t.own
		if before := t.own.Failure; before != nil {
			f.Since = before.Since
			if before.Reason == f.Reason && before.Message == f.Message && before.Permanent == f.Permanent && t.own.Generation == t.Generation {
				if before.RetryAt.Equal(f.RetryAt) {
					return nil // noted already
				}
				tells = nil // told already
			}
			if f.Reason == reason.Unavailable && before.Reason == reason.Unavailable && time.Since(t.own.UpdatedAt) < time.Minute {
				return nil // the same outage in other words: addresses in them differ from try to try
			}
		}
	}
	s.Generation, s.Failure, s.UpdatedAt = t.Generation, &f, time.Now().UTC()
	return t.write(ctx, s, tells)
}

// failed is the fact that tells a failure.
func (t *Turn) failed(f state.Failure) Tell {
	return Tell{event.Failed, event.StepFailed{
		About: t.About(), Reason: f.Reason, Message: f.Message, Attempts: f.Attempts, Retrying: !f.Permanent,
	}}
}

// write writes the own state on top of the revision that was read, then publishes the facts it announces.
func (t *Turn) write(ctx context.Context, s *state.State, tells []Tell) error {
	if err := fence.Check(ctx); err != nil {
		return err
	}
	if len(tells) == 0 && t.own != nil {
		s.Facts = t.own.Facts
		if state.Same(t.own, s) {
			return nil
		}
	}
	if t.own != nil && !s.UpdatedAt.After(t.own.UpdatedAt) { // by another replica's clock
		s.UpdatedAt = t.own.UpdatedAt.Add(time.Nanosecond)
	}
	if len(tells) > 0 {
		s.Facts = append(t.stillOwed(), t.facts(tells, s.UpdatedAt)...)
		// Until they are published they are owed, also when the answer to the write is lost.
		t.forgetPublished()
	}
	published := t.published() || len(s.Facts) == 0
	revision, err := t.loop.Bus.WriteState(ctx, t.Key, t.loop.stateKey(), s, t.revision)
	if errors.Is(err, intent.ErrStale) {
		t.loop.metrics.conflicts.Inc()
	}
	if err != nil {
		return err
	}
	t.own, t.revision = s, revision
	if len(tells) == 0 {
		if published {
			t.notePublished()
		}
		return nil
	}
	t.owe(true)
	for _, f := range s.Facts {
		if err := t.publish(ctx, s, f); err != nil {
			return err
		}
	}
	t.owe(false)
	t.notePublished()
	t.loop.log.Info("step done", "tenant", t.Key.String(), "generation", s.Generation, "step", tells[len(tells)-1].What)
	return nil
}

// stillOwed are the facts of the own state that may lack in the stream, as when a failure is noted that keeps them from being
// published.
func (t *Turn) stillOwed() []state.Fact {
	if !t.owed || t.own == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.own.Facts), func(f state.Fact) bool { return f.What == event.Failed })
}

// facts gives facts the ids that make a repeat harmless: of the tenant, the generation, the revision that is written upon, and the
// time, for revisions begin anew with a bucket: a tenant may leave and come back within the server's memory for repeats. The ids are
// kept in the state, so that whoever tells the facts again uses the same.
func (t *Turn) facts(tells []Tell, at time.Time) []state.Fact {
	facts := make([]state.Fact, 0, len(tells))
	for _, x := range tells {
		facts = append(facts, state.Fact{
			ID: events.ID(t.UID, strconv.FormatInt(t.Generation, 10), t.loop.Service, x.What, strconv.FormatUint(t.revision, 10),
				at.Format(time.RFC3339Nano)),
			What: x.What, Time: at, Data: event.Marshal(x.Data),
		})
	}
	return facts
}

// factEvent is the CloudEvent of a fact, with the trace of the command that led to it.
func (t *Turn) factEvent(generation int64, f state.Fact) ce.Event {
	trace := ""
	if t.Tenant != nil {
		trace = t.Tenant.TraceParent
	}
	return t.loop.Bus.FactEvent(t.Key, generation, trace, f)
}
