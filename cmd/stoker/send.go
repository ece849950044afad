package main

// Commands by event: what all of them have in common. They are sent as a portal sends them.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// answerTimeout is how long a command waits for intake's answer.
const answerTimeout = 15 * time.Second

// answerLimit is how long a command waits for intake's answer. With --wait it may take all that is left of --timeout.
func answerLimit(wait bool, left time.Duration) time.Duration {
	if wait {
		return max(left, answerTimeout)
	}
	return answerTimeout
}

// rejected is a command that intake refused.
type rejected struct {
	object manifest.Object
	event.IntakeRejected
}

func (e *rejected) Error() string {
	return fmt.Sprintf("%s was rejected:\n  %s", e.object, strings.Join(follow.Problems(e.IntakeRejected), "\n  "))
}

// command is what is asked of an object.
type command struct {
	verb string
	data any
	// expected generation of the object; negative for any.
	expected int64
	// answer is how long to wait for intake's answer; 0 is answerTimeout.
	answer time.Duration
}

// anyGeneration is the default of --expected-generation.
const anyGeneration = -1

// expecting declares --expected-generation.
func expecting(c *cobra.Command, expected *int64) {
	c.Flags().Int64Var(expected, "expected-generation", anyGeneration, "refuse unless the object has this metadata.`generation`; 0: unless there is no such object")
}

// send sends a command and waits for the answer. The error is a *rejected when intake refuses it.
func send(ctx context.Context, client *portal.Client, o manifest.Object, c command) (portal.Accepted, error) {
	var opts []portal.Option
	if c.expected >= 0 {
		opts = append(opts, portal.ExpectGeneration(c.expected))
	}
	patience := cmp.Or(c.answer, answerTimeout)
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := client.Command(wait, o.Key, c.verb, c.data, opts...)
	var no *portal.RefusedError
	var unanswered *portal.UnansweredError
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return answer, ctx.Err()
	case errors.As(err, &no):
		return answer, &rejected{o, no.IntakeRejected}
	case errors.As(err, &unanswered) && unanswered.Stored:
		return answer, &timeoutError{fmt.Sprintf("%s: intake has not answered within %s; the command is stored and will be "+
			"carried out when intake is back (command id %s)", o, patience.Round(time.Second), unanswered.Command)}
	}
	return answer, fmt.Errorf("%s: %w", o, err)
}

// late makes the end of a person's patience an error of its own.
func late(ctx context.Context, err error, format string, a ...any) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &timeoutError{fmt.Sprintf(format, a...)}
	}
	return err
}
