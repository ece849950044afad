package intake

// Dead letters for the operator: listed without what they hold, replayed, dropped. A letter that is replayed goes to the service that gave
// its event up, and to no other, by the stream of facts. It is removed once the stream has it.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// answerDeadList lists dead letters.
func (s *svc) answerDeadList(ctx context.Context, question []byte) (any, error) {
	q := event.DeadListQuery{}
	if err := decodeQuestion(question, &q, `{"service":"…","namespace":"…","name":"…","limit":20}`); err != nil {
		return nil, err
	}
	if err := checkFilter(q.DeadFilter); err != nil {
		return nil, err
	}
	switch {
	case q.Limit < 0 || q.Limit > event.MaxDeadLetters:
		return nil, badQuestion(`limit %d: must be 1 to %d; for more, ask again with "before"`, q.Limit, event.MaxDeadLetters)
	case q.Limit == 0:
		q.Limit = deadListed
	}
	letters, more, err := s.bus.DeadLetters(ctx, q.DeadFilter, q.Before, q.Limit)
	if err != nil {
		return nil, err
	}
	return event.DeadListReply{Letters: described(letters), More: more}, nil
}

func described(letters []events.DeadLetter) []event.DeadLetter {
	out := make([]event.DeadLetter, 0, len(letters))
	for _, d := range letters {
		out = append(out, d.DeadLetter)
	}
	return out
}

// answerDeadReplay replays the letters of a question, the oldest first.
func (s *svc) answerDeadReplay(ctx context.Context, question []byte) (any, error) {
	q := event.DeadReplayQuery{}
	if err := decodeQuestion(question, &q, `{"sequence":7} or {"namespace":"…","name":"…","all":true}`); err != nil {
		return nil, err
	}
	letters, more, err := s.pick(ctx, q.Sequence, q.DeadFilter, q.All)
	if err != nil {
		return nil, err
	}
	reply := event.DeadReplayReply{Replayed: []event.DeadLetter{}, More: more}
	for _, d := range slices.Backward(letters) {
		err := s.mayReplay(ctx, d, q.Force)
		if err == nil {
			err = s.bus.ReplayDeadLetter(ctx, d)
		}
		if err != nil {
			reply.Left = append(reply.Left, event.DeadLeft{DeadLetter: d.DeadLetter, Error: err.Error()})
			continue
		}
		s.log.Info("dead letter replayed", "sequence", d.Sequence, "service", d.Service, "tenant", d.Namespace+"/"+d.Name, "event", d.ID)
		reply.Replayed = append(reply.Replayed, d.DeadLetter)
	}
	return reply, nil
}

// answerDeadDrop removes the letters of a question.
func (s *svc) answerDeadDrop(ctx context.Context, question []byte) (any, error) {
	q := event.DeadDropQuery{}
	if err := decodeQuestion(question, &q, `{"sequence":7} or {"namespace":"…","name":"…","all":true}`); err != nil {
		return nil, err
	}
	letters, more, err := s.pick(ctx, q.Sequence, q.DeadFilter, q.All)
	if err != nil {
		return nil, err
	}
	reply := event.DeadDropReply{Dropped: []event.DeadLetter{}, More: more}
	for _, d := range letters {
		if err := s.bus.DropDeadLetter(ctx, d.Sequence); err != nil {
			if len(reply.Dropped) == 0 {
				return nil, err
			}
			reply.More = true // what was dropped is said; who asks again hears of the error
			break
		}
		s.log.Info("dead letter dropped", "sequence", d.Sequence, "service", d.Service, "tenant", d.Namespace+"/"+d.Name, "event", d.ID)
		reply.Dropped = append(reply.Dropped, d.DeadLetter)
	}
	return reply, nil
}

// pick finds the letters that a question is about, newest first: one by its sequence, or those of a filter.
func (s *svc) pick(
	ctx context.Context, sequence uint64, f event.DeadFilter, all bool,
) (letters []events.DeadLetter, more bool, err error) {
	if err := checkFilter(f); err != nil {
		return nil, false, err
	}
	switch {
	case sequence == 0 && !all:
		return nil, false, badQuestion(`name one dead letter by "sequence" (%s lists them), `+
			`or say "all":true for all that service, namespace and name pick`, event.QueryDeadList)
	case sequence != 0 && (all || f != event.DeadFilter{}):
		return nil, false, badQuestion(`sequence %d: names one dead letter; leave out service, namespace, name and all`, sequence)
	case sequence != 0:
		d, err := s.bus.DeadLetter(ctx, sequence)
		if errors.Is(err, events.ErrNotFound) {
			message := fmt.Sprintf("there is no dead letter %d; %s lists them", sequence, event.QueryDeadList)
			return nil, false, &events.Refusal{Code: "404", Message: message}
		}
		return []events.DeadLetter{d}, false, err
	}
	return s.bus.DeadLetters(ctx, f, 0, event.MaxDeadLetters)
}

// mayReplay says why a letter can't be replayed; nil when it can. A fact makes a service look at the tenant as it is now, so that one of an
// older generation does no harm. A command means what it says: carried out late, it would undo what was commanded since.
func (s *svc) mayReplay(ctx context.Context, d events.DeadLetter, force bool) error {
	if d.Truncated > 0 {
		return fmt.Errorf("%d bytes of data are not kept in full; send the event anew and drop this letter", d.Truncated)
	}
	if _, _, _, _, err := events.ParseSubject(d.Subject); err != nil {
		return fmt.Errorf("%w; drop this letter", err)
	}
	key, command := d.Command()
	if !command {
		return nil
	}
	if _, held := event.Redact(key.Kind, d.Message.Data); held {
		return errors.New("it held a password or private key, which is not kept; " +
			"send the command anew, with the key in a Secret, and drop this letter")
	}
	if force || !key.Valid() {
		return nil
	}
	changed, err := s.changedAfter(ctx, key, d.Time)
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("%s was told after the command was given up, which would undo that; "+
			`say "force":true if you mean it, or drop this letter`, changed)
	}
	return nil
}

// changedAfter names the fact by which an object was changed or removed after a time, empty for none. What somebody changes of other
// objects than tenants without a command isn't told.
func (s *svc) changedAfter(ctx context.Context, key events.Key, at time.Time) (fact string, err error) {
	for _, what := range []string{event.Accepted, event.Deleting, event.Removed} {
		last, err := s.bus.LastFact(ctx, key.FactSubject(name.ServiceIntake, what))
		if err != nil {
			return "", err
		}
		if last != nil && last.Time().After(at) {
			return name.ServiceIntake + "." + what, nil
		}
	}
	return "", nil
}
