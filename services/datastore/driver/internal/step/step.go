// Package step does the changes of one call of a driver, one after the other.
package step

import (
	"context"
	"fmt"
)

// Steps does changes until one fails, and notes them. Each asks first whether the caller may still change anything.
type Steps struct {
	ctx     context.Context //nolint:containedctx // of one call of Provision or Drop
	held    func(context.Context) error
	changed []string
	err     error
}

// New returns the steps of a call under ctx; held is asked before each.
func New(ctx context.Context, held func(context.Context) error) *Steps {
	return &Steps{ctx: ctx, held: held}
}

// Do makes a change unless one before it failed.
func (s *Steps) Do(what string, change func(ctx context.Context) error) {
	if s.err == nil {
		s.err = s.held(s.ctx)
	}
	if s.err != nil {
		return
	}
	if err := change(s.ctx); err != nil {
		s.err = fmt.Errorf("%s: %w", what, err)
		return
	}
	s.changed = append(s.changed, what)
}

// Changed is what was done.
func (s *Steps) Changed() []string { return s.changed }

// Err is the error of the step that failed.
func (s *Steps) Err() error { return s.err }
