// Package gate bounds how many callers use one database at once, and gives all that wait the error when it is found to be away.
package gate

import (
	"context"
	"errors"
	"sync"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Gate is what callers share. Callers wait for each other as long as the database goes on answering: a thousand may wait
// for the work of a thousand, but when it is found to be away, all that wait get its error at once.
type Gate struct {
	slots    chan struct{}
	classify func(error) error

	mu     sync.Mutex
	outage *outage // the next one
}

type outage struct {
	began chan struct{}
	err   error
}

// New makes a gate for so many at once. classify wraps driver.ErrAway around errors that mean so.
func New(slots int, classify func(error) error) *Gate {
	return &Gate{slots: make(chan struct{}, slots), classify: classify, outage: &outage{began: make(chan struct{})}}
}

// Do calls f when it is the caller's turn. Errors are classified, unless ctx was cancelled: then they are its own.
func (g *Gate) Do(ctx context.Context, f func() error) error {
	g.mu.Lock()
	next := g.outage
	g.mu.Unlock()
	select {
	case g.slots <- struct{}{}:
	case <-next.began:
		return next.err
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.slots }()
	select {
	case <-next.began:
		return next.err
	default:
	}
	err := f()
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if err = g.classify(err); errors.Is(err, driver.ErrAway) {
		g.mu.Lock()
		if g.outage == next {
			next.err = err
			close(next.began)
			g.outage = &outage{began: make(chan struct{})}
		}
		g.mu.Unlock()
	}
	return err
}
