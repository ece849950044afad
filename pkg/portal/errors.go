package portal

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// ErrNoStatus means that there is no status of that tenant: it never was, or is gone for more than a day, or it was
// accepted just now.
var ErrNoStatus = errors.New("no status")

// RefusedError is a command that was refused and changed nothing. Errors says what is wrong, field by field.
type RefusedError struct{ event.IntakeRejected }

func (e *RefusedError) Error() string {
	what := e.Name
	if e.Namespace != "" {
		what = e.Namespace + "/" + what
	}
	lines := make([]string, len(e.Errors))
	for i, f := range e.Errors {
		lines[i] = f.Field + ": " + f.Rule + ": " + f.Message
		if f.Value != "" && !strings.Contains(f.Message, f.Value) {
			lines[i] += fmt.Sprintf(" (is %q)", f.Value)
		}
	}
	return what + " was refused: " + strings.Join(lines, "; ")
}

// Has reports whether a rule was broken ("Conflict", "NotFound", "Deleting"; docs/events.md lists them).
func (e *RefusedError) Has(rule string) bool {
	return slices.ContainsFunc(e.Errors, func(f event.FieldError) bool { return f.Rule == rule })
}

// UnansweredError is a command whose answer didn't come before ctx ended. Send it again with the same ID: if it was carried
// out already, it is answered and changes nothing.
type UnansweredError struct {
	// Command is the id of the command.
	Command string
	// Stored is true when NATS has the command: it will be carried out when intake is back. Else it may or may not have it.
	Stored bool
	// Err is why, ctx's error among others.
	Err error
}

func (e *UnansweredError) Error() string {
	if e.Stored {
		return fmt.Sprintf("command %s is stored, but intake has not answered it: %v", e.Command, e.Err)
	}
	return fmt.Sprintf("command %s could not be published: %v", e.Command, e.Err)
}

func (e *UnansweredError) Unwrap() error { return e.Err }

// FailedError is a tenant that doesn't become what was asked for without somebody's help.
type FailedError struct{ Status event.StatusChanged }

func (e *FailedError) Error() string {
	return fmt.Sprintf("%s/%s is %s: %s: %s", e.Status.Namespace, e.Status.Name, e.Status.Phase, e.Status.Reason, e.Status.Message)
}

// DeniedError is NATS' refusal: the user lacks the right to publish on the subject, or to subscribe to it.
type DeniedError struct {
	Subject string
	Err     error
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("this NATS user has no right to %s: %v", e.Subject, e.Err)
}

func (e *DeniedError) Unwrap() error { return e.Err }
