// Package poll waits for conditions in tests.
package poll

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// limit is how long a condition may take on a busy machine.
const limit = 5 * time.Minute

// True waits until a condition is true. It ends the test when that takes five minutes, or when the test's context ends. what names the
// condition in the test's log.
func True(t testing.TB, what string, condition func() bool) {
	t.Helper()
	Nil(t, what, func() error {
		if !condition() {
			return errors.New("the condition is false")
		}
		return nil
	})
}

// Nil calls try until it returns nil. It ends the test as [True] does, with the last error of try.
func Nil(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := Retry(t.Context(), try); err != nil {
		t.Fatalf("never happened: %s: %v", what, err)
	}
}

// Retry calls try until it returns nil. After five minutes, or when ctx ends, it returns an error that wraps the last error of try. It calls try at
// least once. The first pause is 10 ms. Pauses grow to a tenth of the time that has passed, and to 500 ms at most, because each call
// takes time from the work that the test waits for.
func Retry(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for began := time.Now(); ; {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w after %s)", err, ctx.Err(), time.Since(began).Round(time.Second))
		case <-time.After(min(10*time.Millisecond+time.Since(began)/10, 500*time.Millisecond)):
		}
	}
}
