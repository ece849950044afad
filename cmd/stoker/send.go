package main

// Commands by event: what apply and delete have in common. A command is published as a portal would, with an inbox for
// intake's answer.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// answerTimeout is how long intake is waited for.
const answerTimeout = 15 * time.Second

// rejected is a command that intake refused.
type rejected struct {
	object manifest.Object
	event.IntakeRejected
}

func (e *rejected) Error() string {
	return fmt.Sprintf("%s was rejected:\n  %s", e.object, strings.Join(follow.Problems(e.IntakeRejected), "\n  "))
}

// send publishes a command and waits for the answer; what is the fact's last token. The error is a *rejected when intake
// refuses it.
func send(ctx context.Context, bus *events.Bus, o manifest.Object, typ string, data any) (what string, about event.About, err error) {
	// The plain prefix: intake may answer on no other.
	inbox := nats.NewInbox()
	sub, err := bus.Conn().SubscribeSync(inbox)
	if err != nil {
		return "", about, err
	}
	defer func() { _ = sub.Unsubscribe() }()

	e := bus.NewEvent(o.Key, nuid.Next(), typ, data, time.Now())
	e.SetExtension(events.ExtReplyTo, inbox)
	if _, err := bus.Publish(ctx, o.Key.CommandSubject(), e); err != nil {
		return "", about, fmt.Errorf("%s: %w", o, err)
	}
	wait, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := sub.NextMsgWithContext(wait)
	if ctx.Err() != nil {
		return "", about, ctx.Err()
	}
	if err != nil {
		return "", about, &timeoutError{fmt.Sprintf("%s: intake has not answered within %s; the command is stored and will be "+
			"carried out when intake is back (command id %s)", o, answerTimeout, e.ID())}
	}
	answer, err := events.Decode(m.Header, m.Data)
	if err != nil {
		return "", about, fmt.Errorf("answer about %s: %w", o, err)
	}
	if answer.Type() == event.FactType(name.ServiceIntake, event.Rejected) {
		r := &rejected{object: o}
		if err := json.Unmarshal(answer.Data(), &r.IntakeRejected); err != nil {
			return "", about, fmt.Errorf("answer about %s: %w", o, err)
		}
		return event.Rejected, r.About, r
	}
	if err := json.Unmarshal(answer.Data(), &about); err != nil {
		return "", about, fmt.Errorf("answer about %s: %w", o, err)
	}
	for _, what := range []string{event.Accepted, event.Deleting, event.Removed} {
		if answer.Type() == event.FactType(name.ServiceIntake, what) {
			return what, about, nil
		}
	}
	return "", about, fmt.Errorf("answer about %s is of unknown type %s", o, answer.Type())
}

// late makes the end of a person's patience an error of its own.
func late(ctx context.Context, err error, format string, a ...any) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &timeoutError{fmt.Sprintf(format, a...)}
	}
	return err
}
