package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// classify gives an error of a request its intent. It is the one place that does so for Kubernetes: a server that can't be reached,
// or can't answer now, is [intent.Unavailable] and is reported to Options.Health; one that fails at this object alone
// ([FailsAlone]) is [intent.Unavailable] without a dependency, for it answers others; a write that the fence kept back is
// [fence.ErrFenced]; what ends with ctx wraps ctx.Err(). Any other answer is returned as it is, an error of apimachinery's errors
// package. An answer can be read from all of them but those two last (errors.As with apierrors.APIStatus).
func (c *Client) classify(ctx context.Context, err error) error {
	switch {
	case err == nil:
		c.answered()
		return nil
	case errors.Is(err, fence.ErrFenced):
		return fence.ErrFenced
	case answers(err):
		if c.told != nil {
			c.told(nil)
		}
		return err
	case FailsAlone(err):
		return &intent.Unavailable{Err: err}
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if c.health != nil {
		c.health.Down(Dependency, err)
	}
	away := &intent.Unavailable{Dependency: c.dependency, Err: err}
	if c.told != nil {
		c.told(away)
	}
	return away
}

// answered reports that the server answers.
func (c *Client) answered() {
	if c.health != nil {
		c.health.Up(Dependency)
	}
	if c.told != nil {
		c.told(nil)
	}
}

// answers reports whether an error is the server's answer about the object, not a sign that it can't answer now. No 5xx is:
// whatever it says, the same request may succeed later.
func answers(err error) bool {
	var answer apierrors.APIStatus
	// Unauthorized says nothing about the object: our token has run out, or the server can't check it now.
	return errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError && !apierrors.IsUnauthorized(err) &&
		!apierrors.IsServerTimeout(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTimeout(err)
}

// storageFails is what an API server says in a 500 that its etcd is to blame for: no leader, no quorum, no space, no connection. The
// API has no type for it.
var storageFails = regexp.MustCompile(`etcdserver|etcdclient|rpc error: code =|context deadline exceeded|context canceled|` +
	`connection (refused|reset)|transport is closing|storage is \(re\)initializing`)

// FailsAlone reports an error that a server gave to one request while it may well answer others: an admission or conversion webhook
// that fails, a panic, an object that can't be decoded. It is no answer about the object, for the same request may succeed later.
func FailsAlone(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Code != http.StatusInternalServerError || apierrors.IsServerTimeout(err) {
		return false
	}
	message := answer.Status().Message
	return strings.Contains(message, "webhook") || !storageFails.MatchString(message)
}

// IsAway reports whether an error means that the server couldn't be reached or couldn't answer.
func IsAway(err error) bool {
	var u *intent.Unavailable
	var n net.Error
	return errors.As(err, &u) || errors.As(err, &n)
}

// BrokenOff reports whether a server broke off its answer, as an API server does, by an HTTP/2 INTERNAL_ERROR, when its time for a request
// is over and the answer has begun.
func BrokenOff(err error) bool {
	var broken http2.StreamError
	return errors.As(err, &broken) && broken.Code == http2.ErrCodeInternal
}
