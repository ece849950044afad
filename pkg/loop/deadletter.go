package loop

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// giveUp puts a turn's events into the dead letters with their cause, notes the failure, and has the object looked at again after
// a while; the events are then done.
func (l *Loop) giveUp(ctx context.Context, t *Turn, w work, f state.Failure) error {
	f.RetryAt = l.tryAgain(t)
	if w.isAgain() && t.own != nil && t.own.Failure != nil {
		f.Attempts += t.own.Failure.Attempts
	}
	l.log.Error("gave up", "tenant", t.Key.String(), "reason", f.Reason, "cause", f.Message, "attempts", f.Attempts, "again", f.RetryAt)
	for _, d := range w.batch {
		if d.ended || d.event.isDailyLook() { // there is another daily look tomorrow
			continue
		}
		if err := t.Bury(ctx, d.event, f.Reason, f.Message); err != nil {
			return err
		}
	}
	if err := t.fail(ctx, f); err != nil && !errors.Is(err, events.ErrNotFound) {
		return err
	}
	return nil
}

// Bury stores one event of the turn in the dead letters with its cause.
func (t *Turn) Bury(ctx context.Context, e Event, reason, message string) error {
	t.loop.metrics.dead.Inc()
	_, err := t.loop.Bus.PublishMsg(ctx, deadLetter(t.Key, t.loop.Service, e, reason, message))
	return err
}

// deadLetter is the message that keeps an event as it came, but for what [event.Redact] takes out of commands, with its subject, a
// reason and a cause as headers.
func deadLetter(key events.Key, service string, e Event, reason, message string) *nats.Msg {
	m := nats.NewMsg(key.DeadSubject(service))
	size := 0
	for k, v := range e.Raw.Header {
		ours := strings.HasPrefix(k, "Nats-") || strings.HasPrefix(k, "Stoker-") // the server's or this letter's, not the sender's
		if size += len(k) + len(strings.Join(v, "")); !ours && size <= events.MaxPayload {
			m.Header[k] = v
		}
	}
	// An event as large as the server allows leaves no room for its cause.
	if m.Data = e.Raw.Data; e.IsCommand() {
		m.Data, _ = event.Redact(key.Kind, m.Data) // no password or private key stays in JetStream
	}
	if len(m.Data) > events.MaxPayload {
		m.Header.Set(events.HeaderTruncated, strconv.Itoa(len(m.Data)))
		m.Data = m.Data[:events.MaxPayload]
	}
	m.Header.Set(events.HeaderSubject, subjectOf(e.Raw))
	m.Header.Set(events.HeaderReason, reason)
	m.Header.Set(events.HeaderCause, strings.Map(printable, events.Clip(message)))
	if meta, err := e.Raw.Metadata(); err == nil {
		m.Header.Set(events.HeaderDeliveries, strconv.FormatUint(meta.NumDelivered, 10))
		sequence := strconv.FormatUint(meta.Sequence.Stream, 10)
		m.Header.Set(nats.MsgIdHdr, events.ID("dead", service, meta.Stream, sequence, meta.Timestamp.String()))
	}
	return m
}

// subjectOf is the subject of a message's event: of a dead letter that is replayed, the one it had before.
func subjectOf(m *nats.Msg) string {
	if events.IsReplay(m.Subject) {
		return m.Header.Get(events.HeaderSubject)
	}
	return m.Subject
}

// printable keeps header values on one line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
