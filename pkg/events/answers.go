package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// answersKept is how long a command's answer is known: as long as the command itself.
const answersKept = 7 * 24 * time.Hour

// Answer is what intake noted of a command that it carried out: who sends the command again gets the same answer, and
// nothing is changed. The server's own deduplication forgets an id too soon for that. The note of a command that was refused is for its
// copies that were stored before; sent again later, it is looked at anew.
type Answer struct {
	// Request is the [Fingerprint] of what was asked for; the same id with another one is another command.
	Request string `json:"command"`
	// What was told ("accepted") and its payload.
	What string          `json:"what"`
	Data json.RawMessage `json:"data"`
	// Noted is when, by the server's clock.
	Noted time.Time `json:"-"`
}

// Fingerprint is a hash of what a command asks for: its type, its object, the generation it expects and its data, however that is
// spaced.
func Fingerprint(key Key, command ce.Event) string {
	data := command.Data()
	var compact bytes.Buffer
	if json.Compact(&compact, data) == nil {
		data = compact.Bytes()
	}
	expected := ""
	if v, ok := command.Extensions()[ExtExpectedGeneration]; ok {
		expected = fmt.Sprint(v)
	}
	return ID(command.Type(), key.Kind, key.String(), expected, string(data))
}

// AnswerID is the id of the event that answers a command.
func AnswerID(command ce.Event) string { return ID(command.Source(), command.ID(), "answer") }

// ReplyTo is the subject on which the sender of a command waits for an answer, as the sender wrote it; empty for none.
func ReplyTo(command ce.Event) string {
	subject, _ := command.Extensions()[ExtReplyTo].(string)
	return subject
}

// noteSubject is where the answer to a command is kept. Source and id identify an event (CloudEvents 1.0.2), but anybody can write
// any: among those who may command in a namespace they do, and no other portal can take them.
func noteSubject(key Key, source, id string) string {
	return "$KV." + BucketCommands + "." + ID(key.Namespace, source, id)
}

// Answered returns what was noted about a command, nil when nothing was.
func (b *Bus) Answered(ctx context.Context, key Key, source, id string) (*Answer, error) {
	a, err := b.answered(ctx, noteSubject(key, source, id), id)
	if a != nil || err != nil {
		return a, err
	}
	// Noted before there were namespaces in the subject; none is after 2027-01, when answersKept is over everywhere.
	return b.answered(ctx, "$KV."+BucketCommands+"."+ID(source, id), id)
}

// answered asks the leader, for a server that lags may not know yet.
func (b *Bus) answered(ctx context.Context, subject, id string) (*Answer, error) {
	msg, err := b.LastOfLeader(ctx, "KV_"+BucketCommands, subject)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, jetstream.ErrStreamNotFound): // neither is it an error that the bucket is gone
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("answer to command %s: %w", Clip(id), err)
	}
	a := &Answer{Noted: msg.Time}
	if err := json.Unmarshal(msg.Data, a); err != nil {
		return nil, fmt.Errorf("answer to command %s is not JSON: %w", Clip(id), err)
	}
	return a, nil
}

// EraseCommand overwrites a stored command, by its place in the stream, with random bytes and removes it. It is no error when it isn't
// there any more.
func (b *Bus) EraseCommand(ctx context.Context, sequence uint64) error {
	ask, cancel := context.WithTimeout(ctx, b.requestTimeout())
	defer cancel()
	s, err := b.js.Stream(ask, StreamIntake)
	if err == nil {
		err = s.SecureDeleteMsg(ask, sequence)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return nil
	}
	return classifyRequest(ctx, err)
}

// NoteAnswer notes the answer to a command that was carried out.
func (b *Bus) NoteAnswer(ctx context.Context, key Key, source, id string, a Answer) error {
	msg := nats.NewMsg(noteSubject(key, source, id))
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("answer to command %s: %w", Clip(id), err)
	}
	msg.Data = data
	_, err = b.PublishMsg(ctx, msg)
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // removed by hand, if JetStream is there at all
		if err = provisionBuckets(ctx, b.js, b.cfg.StreamReplicas); err == nil {
			_, err = b.PublishMsg(ctx, msg)
		}
	}
	return err
}
