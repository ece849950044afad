package release

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// ErrNotInstalled is that of [Cluster.Repair] when the release isn't there in the revision that is to be repaired. [Cluster.Install] makes it anew.
var ErrNotInstalled = errors.New("the release isn't installed in this revision")

// Error says why something can't be done with a release as things are.
type Error struct {
	// Reason is one of ReasonTaken, ReasonTenantWebhook, ReasonRefused, ReasonHookFailed, ReasonRenderFailed and ReasonInvalidValues of
	// pkg/api/tenantaddon.
	Reason string
	// Message names the object, hook, webhook or field, and what is wrong with it; at most 1024 bytes.
	Message string
	// Err is the cause; nil for none.
	Err error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// maxMessage bounds Error.Message, in bytes.
const maxMessage = 1024

func newError(reason string, err error, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: clip(fmt.Sprintf(format, args...), maxMessage), Err: err}
}

// clip shortens a text at a whole character.
func clip(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes-len("…")], "") + "…"
}

// webhookName finds the webhook in what an API server says when one failed or refused. There is no type for it.
var webhookName = regexp.MustCompile(`(?:failed calling webhook|admission webhook) "([^"]+)"`)

// conversionOf finds of what a conversion webhook failed.
var conversionOf = regexp.MustCompile(`conversion webhook for (.+?) failed`)

// valueOf finds a value of an object in what an API server says; it may be a Secret's.
var valueOf = regexp.MustCompile(`got &value\.[^\n]*`)

// takenObject finds the object that Helm won't take over. It gives nothing but text.
var takenObject = regexp.MustCompile(`(\S+ "[^"]*" in namespace "[^"]*") exists and cannot be imported into the current release: `)

// failed gives an error of an operation its type.
func (o *operation) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var typed *Error
	var away *intent.Unavailable
	answered := asAnswer(err)
	switch {
	case errors.Is(err, fence.ErrFenced) || errors.Is(o.wire.broken(), fence.ErrFenced):
		return fence.ErrFenced
	case errors.As(err, &typed):
		return typed
	case errors.Is(err, ErrNotInstalled):
		return ErrNotInstalled
	case ctx.Err() != nil:
		return fmt.Errorf("release %s: %w", o.Name, context.Cause(ctx))
	}
	if at, hook := o.slowHook(ctx); hook != "" {
		return newError(tenantaddon.ReasonTenantWebhook, err,
			"%s: the tenant's API doesn't answer in time; the tenant's own webhook %q is asked about such objects", at, hook)
	}
	switch {
	case answered != nil:
		return o.refused(err, answered)
	case errors.As(err, &away):
		return away
	case o.wire.broken() != nil:
		return unavailable(o.wire.broken())
	}
	return helmFailed(err)
}

// refused is failed for what the API server answered.
func (o *operation) refused(err error, answered apierrors.APIStatus) error {
	status := answered.Status()
	message := valueOf.ReplaceAllString(status.Message, "got another type")
	object := ""
	if at := o.wire.refusedObject(); at != "" {
		object = at + ": "
	}
	if found := webhookName.FindStringSubmatch(status.Message); found != nil {
		return newError(tenantaddon.ReasonTenantWebhook, err, "%sthe tenant's own webhook %q: %s", object, found[1], status.Message)
	}
	if found := conversionOf.FindStringSubmatch(status.Message); found != nil {
		return newError(tenantaddon.ReasonTenantWebhook, err, "%sthe tenant's own conversion webhook for %s: %s", object, found[1], status.Message)
	}
	cause := err
	if e, ok := answered.(error); ok {
		cause = e
	}
	if status.Code >= 500 && !kube.FailsAlone(cause) || apierrors.IsUnauthorized(cause) || apierrors.IsTooManyRequests(cause) {
		return unavailable(cause)
	}
	return newError(tenantaddon.ReasonRefused, err, "%s%s", object, message)
}

// helmFailed is failed for what Helm says in text.
func helmFailed(err error) error {
	if found := takenObject.FindStringSubmatch(err.Error()); found != nil {
		return newError(tenantaddon.ReasonTaken, err,
			"%s is there and isn't this Helm release's; delete it, or give it the label and the annotations by which Helm knows its own", found[1])
	}
	if errors.Is(err, driver.ErrReleaseExists) {
		return newError(tenantaddon.ReasonTaken, err, "a Secret of the Helm release is there that can't be read as a revision of it; delete it")
	}
	return newError(tenantaddon.ReasonRenderFailed, err, "%v", err)
}

func unavailable(err error) error {
	if away := (*intent.Unavailable)(nil); errors.As(err, &away) {
		return away
	}
	return &intent.Unavailable{Err: fmt.Errorf("the tenant's API: %w", err)}
}

// asAnswer is the API server's answer in an error, nil for none.
func asAnswer(err error) apierrors.APIStatus {
	var answered apierrors.APIStatus
	if errors.As(err, &answered) {
		return answered
	}
	return nil
}
