package source

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"

	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// Error says why a spec can't be used. All errors of this package are of this type, except that of a context which ended.
type Error struct {
	// Reason is one of the reasons of package tenantaddon: Invalid, SourceUnavailable, SourceInvalid, SourceChanged, ValuesUnavailable,
	// InvalidValues or RenderFailed. SourceUnavailable and ValuesUnavailable may pass.
	Reason string
	// Field at fault, such as spec.chart.version.
	Field string
	// Err is what is wrong with it.
	Err error
}

// Error names the field and what is wrong with it. It holds nothing of a Secret.
func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong with the field.
func (e *Error) Unwrap() error { return e.Err }

// Reason returns the reason of an error of this package, and "" for any other.
func Reason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func fail(reason, field, format string, args ...any) error {
	return &Error{Reason: reason, Field: field, Err: fmt.Errorf(format, args...)}
}

func invalid(field, format string, args ...any) error {
	return fail(tenantaddon.ReasonInvalid, field, format, args...)
}

func sourceInvalid(field, format string, args ...any) error {
	return fail(tenantaddon.ReasonSourceInvalid, field, format, args...)
}

func unavailable(field, format string, args ...any) error {
	return fail(tenantaddon.ReasonSourceUnavailable, field, format, args...)
}

// refusal is what a server answers or leads to that is never accepted.
type refusal string

func (r refusal) Error() string { return string(r) }

// statusError is an answer other than 200.
type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", int(s), http.StatusText(int(s)))
}

// query is what URLs may hold that nobody else must read, such as signatures.
var query = regexp.MustCompile(`\?[^\s"]*`)

// fetchFailed is the error of a request. Bodies and whole URLs that servers have sent aren't in it.
func (s *source) fetchFailed(err error) error {
	var own *Error
	var refused refusal
	var status statusError
	var answer *errcode.ErrorResponse
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &refused):
		return sourceInvalid(s.urlField, "%s: %w", s.shown, refused)
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrInvalidDescriptorSize),
		errors.Is(err, content.ErrTrailingData):
		return sourceInvalid(s.urlField, "%s: the registry's content doesn't have the digest or the size that it says", s.shown)
	case errors.As(err, &answer):
		status = statusError(answer.StatusCode)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		status = http.StatusUnauthorized
	case errors.Is(err, errdef.ErrNotFound):
		status = http.StatusNotFound
	case errors.As(err, &status):
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(s.urlField, "%s: not fetched within %s", s.shown, fetchTimeout)
	case errors.As(err, &authority):
		return unavailable(s.urlField, "%s: the server's certificate is of an unknown authority: give that as %s in the Secret of "+
			"%s.credentials", s.shown, keyCA, s.field)
	default:
		return unavailable(s.urlField, "%s: %s", s.shown, query.ReplaceAllString(cause(err).Error(), ""))
	}
	return unavailable(s.urlField, "%s: %w%s", s.shown, status, s.hint(int(status)))
}

// cause is the inner error of a request that got no answer, without what differs each time, such as our own ports.
func cause(err error) error {
	var lookup *net.DNSError
	var operation *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &lookup):
		return fmt.Errorf("lookup %s: %s", lookup.Name, lookup.Err)
	case errors.As(err, &operation):
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	case errors.As(err, &request):
		return request.Err
	}
	return err
}

// hint is the way out of an answer.
func (s *source) hint(status int) string {
	switch {
	case status == http.StatusNotFound && s.isOCI():
		return fmt.Sprintf(": it has no %s, or doesn't show it to us", s.wanted())
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		return ""
	case s.url.Scheme == "http":
		return ": it may want a user and a password, which are never sent without TLS: use https://"
	case s.credentials.named:
		return fmt.Sprintf(": it refuses the user and password of the Secret of %s.credentials", s.field)
	default:
		return fmt.Sprintf(": it wants a user and a password: name a Secret with them in %s.credentials", s.field)
	}
}
