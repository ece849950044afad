package loop

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// CommandOutcome is what a command has come to: it was carried out, or refused.
type CommandOutcome struct {
	// What is told of it (event.Accepted, event.Deleting, event.Rejected), with Data, one of pkg/api/event.
	What string
	Data any
	// State is to be written, with the facts that it announces; nil when the state is as it must be.
	State *Outcome
	// FactID is the id under which What is told as a fact that no state announces; empty when there is no such fact. Generation is
	// that of the object.
	FactID     string
	Generation int64
	// Request is what was asked for ([events.Fingerprint]): the answer is noted with it, so that the command, sent again, gets the
	// same one and changes nothing. Empty for a command that is refused whenever it comes, and for an answer noted before.
	Request string
	// Refused says why the command changed nothing; empty when it was carried out.
	Refused string
}

// EndCommand ends a command of the turn. It writes what follows from the outcome, each step after the one that it depends on, so
// that a crash or an error between two of them loses nothing when the command is delivered again:
//
//  1. the state with its facts, or the fact that no state announces: the other services go on by them, whoever is told;
//  2. the note of the answer: from here on the command is not carried out again;
//  3. the answer on the subject that the sender named, once: who misses it sends the command again and gets what was noted;
//  4. the dead letter, when the command was refused and named no such subject, so that its sender can't be told.
//
// Errors are those of [Turn.Done] and of NATS. The turn is then repeated: the state is found as it must be, the ids of facts, of the
// note and of the dead letter make repeats harmless. Without an error the command is over, also when the rest of the turn fails and is
// repeated.
func (t *Turn) EndCommand(ctx context.Context, e Event, o CommandOutcome) error {
	err := t.endCommand(ctx, e, o)
	if err == nil {
		t.ended = append(t.ended, e.Raw)
	}
	return err
}

func (t *Turn) endCommand(ctx context.Context, e Event, o CommandOutcome) error {
	bus := t.loop.Bus
	if o.State != nil {
		if err := t.Done(ctx, *o.State); err != nil {
			return err
		}
	}
	if o.FactID != "" {
		if err := bus.Tell(ctx, t.Key, o.Generation, o.FactID, o.What, o.Data); err != nil {
			return err
		}
	}
	if o.Request != "" {
		answer := events.Answer{Request: o.Request, What: o.What, Data: event.Marshal(o.Data)}
		if err := bus.NoteAnswer(ctx, t.Key, e.Source(), e.ID(), answer); err != nil {
			return err
		}
	}
	if subject := events.ReplyTo(e.Event); t.Key.IsAnswer(subject) {
		return bus.Answer(subject, t.Key, events.AnswerID(e.Event), o.What, o.Data)
	}
	if o.Refused != "" {
		return t.Bury(ctx, e, reason.Rejected, o.Refused)
	}
	return nil
}
