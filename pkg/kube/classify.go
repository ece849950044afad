package kube

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// classify gives an error of a request its intent. It is the one place that does so for Kubernetes: a server that can't be reached,
// or can't answer now, is [intent.Unavailable] and is reported to Options.Health; a write that the fence kept back is
// [fence.ErrFenced]; what ends with ctx wraps ctx.Err(). Any other answer is returned as it is, an error of apimachinery's errors
// package.
func (c *Client) classify(ctx context.Context, err error) error {
	switch {
	case err == nil:
		c.answered()
		return nil
	case errors.Is(err, fence.ErrFenced):
		return fence.ErrFenced
	case answers(err):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if c.health != nil {
		c.health.Down(Dependency, err)
	}
	return &intent.Unavailable{Dependency: c.dependency, Err: err}
}

// answered reports that the server answers.
func (c *Client) answered() {
	if c.health != nil {
		c.health.Up(Dependency)
	}
}

// answers reports whether an error is the server's answer about the object, not a sign that it can't answer now.
func answers(err error) bool {
	var answer apierrors.APIStatus
	// Unauthorized says nothing about the object: our token has run out, or the server can't check it now.
	return errors.As(err, &answer) && !apierrors.IsUnauthorized(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err)
}

// IsAway reports whether an error means that the server couldn't be reached or couldn't answer.
func IsAway(err error) bool {
	var u *intent.Unavailable
	var n net.Error
	return errors.As(err, &u) || errors.As(err, &n)
}
