package events

// Dead letters: the events in STOKER_DEAD that no retry could help, found again, handed back to the service that gave them up, or
// removed. pkg/loop writes them.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Headers of dead letters, beside those of their events.
const (
	// HeaderSubject is the subject on which the event was delivered.
	HeaderSubject = "Stoker-Subject"
	// HeaderReason and HeaderCause say why it was given up.
	HeaderReason = "Stoker-Reason"
	HeaderCause  = "Stoker-Cause"
	// HeaderDeliveries is how often it had been delivered.
	HeaderDeliveries = "Stoker-Deliveries"
	// HeaderTruncated is the size of data that was cut off.
	HeaderTruncated = "Stoker-Truncated"
)

// DeadLetter is a message of STOKER_DEAD.
type DeadLetter struct {
	event.DeadLetter
	// Message as it is stored.
	Message *jetstream.RawStreamMsg
}

// Command returns the object of the command that the letter holds; false when it holds a fact.
func (d DeadLetter) Command() (key Key, command bool) {
	key, _, service, _, err := ParseSubject(d.Message.Header.Get(HeaderSubject))
	return key, err == nil && service == ""
}

const (
	// firstStretch and longestStretch are how many sequences of the stream are searched at once, from the newest on; it doubles.
	firstStretch, longestStretch = 256, 4096
)

// DeadLetters returns up to limit dead letters that a filter picks, newest first, of those before a sequence (0: all), and whether
// there are more. It reads what is picked and little else, one message at a time.
func (b *Bus) DeadLetters(
	ctx context.Context, filter event.DeadFilter, before uint64, limit int,
) (letters []DeadLetter, more bool, err error) {
	ask, cancel := context.WithTimeout(ctx, b.requestTimeout())
	defer cancel()
	s, err := b.js.Stream(ask, StreamDead)
	if err != nil {
		return nil, false, classifyRequest(ctx, err)
	}
	state := s.CachedInfo().State
	subject := deadPrefix + cmp.Or(filter.Service, "*") + ".*." + cmp.Or(filter.Namespace, "*") + "." + cmp.Or(name.Token(filter.Name), "*")
	end := state.LastSeq + 1
	if before > 0 {
		end = min(end, before)
	}
	for stretch := uint64(firstStretch); end > state.FirstSeq && len(letters) <= limit; stretch = min(2*stretch, longestStretch) {
		begin := max(state.FirstSeq, end-min(end, stretch))
		found, err := b.deadLettersIn(ctx, subject, begin, end)
		if err != nil {
			return nil, false, err
		}
		for i := range found {
			letters = append(letters, found[len(found)-1-i])
		}
		end = begin
	}
	if len(letters) > limit {
		return letters[:limit], true, nil
	}
	return letters, false, nil
}

// deadLettersIn returns those on a subject from sequence begin until before end, oldest first.
func (b *Bus) deadLettersIn(ctx context.Context, subject string, begin, end uint64) (found []DeadLetter, err error) {
	for begin < end {
		m, err := b.getOfLeader(ctx, StreamDead, messageRequest{From: max(begin, 1), NextOn: subject})
		switch {
		case errors.Is(err, ErrNotFound):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("dead letters: %w", err)
		case m.Sequence >= end:
			return found, nil
		}
		found = append(found, deadLetter(m))
		begin = m.Sequence + 1
	}
	return found, nil
}

// DeadLetter returns the dead letter of a sequence; [ErrNotFound] when there is none.
func (b *Bus) DeadLetter(ctx context.Context, sequence uint64) (DeadLetter, error) {
	m, err := b.getOfLeader(ctx, StreamDead, messageRequest{From: sequence})
	if err != nil {
		return DeadLetter{}, fmt.Errorf("dead letter %d: %w", sequence, err)
	}
	return deadLetter(m), nil
}

// deadLetter describes a stored message. What its sender wrote may be of any length.
func deadLetter(m *jetstream.RawStreamMsg) DeadLetter {
	header := func(key string) string { return Clip(headerValue(m.Header, key)) }
	d := event.DeadLetter{
		Sequence: m.Sequence, Time: m.Time.UTC().Truncate(time.Millisecond), Subject: header(HeaderSubject),
		Reason: header(HeaderReason), Cause: header(HeaderCause),
	}
	if t := strings.Split(m.Subject, "."); len(t) == 6 {
		d.Service, d.Namespace, d.Name = t[2], t[4], name.FromToken(t[5])
	}
	if e, err := Decode(m.Header, m.Data); err == nil {
		d.Type, d.ID, d.Source = Clip(e.Type()), Clip(e.ID()), Clip(e.Source())
	}
	d.Deliveries, _ = strconv.Atoi(header(HeaderDeliveries))
	d.Truncated, _ = strconv.Atoi(header(HeaderTruncated))
	return DeadLetter{d, m}
}

// ReplayDeadLetter hands an event once more to the service that gave it up, and to no other, and then removes the letter. The server
// drops a repeat of that for two minutes, so that of two who replay a letter at once one has an effect.
func (b *Bus) ReplayDeadLetter(ctx context.Context, d DeadLetter) error {
	m := nats.NewMsg(replayPrefix + strings.TrimPrefix(d.Message.Subject, deadPrefix))
	for k, v := range d.Message.Header {
		if !strings.HasPrefix(k, "Nats-") {
			m.Header[k] = v
		}
	}
	m.Header.Set(nats.MsgIdHdr, ID("replay", strconv.FormatUint(d.Sequence, 10), d.Message.Time.UTC().Format(time.RFC3339Nano)))
	m.Data = d.Message.Data
	if _, err := b.PublishMsg(ctx, m); err != nil {
		return err
	}
	return b.DropDeadLetter(ctx, d.Sequence)
}

// DropDeadLetter removes a dead letter; it is no error when it isn't there any more.
func (b *Bus) DropDeadLetter(ctx context.Context, sequence uint64) error {
	ask, cancel := context.WithTimeout(ctx, b.requestTimeout())
	defer cancel()
	s, err := b.js.Stream(ask, StreamDead)
	if err == nil {
		err = s.DeleteMsg(ask, sequence)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return nil
	}
	return classifyRequest(ctx, err)
}
