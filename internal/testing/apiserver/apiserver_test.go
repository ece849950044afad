package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestStartStopsWaitingForAnAPIServerThatEnds(t *testing.T) {
	s, err := Start(t.Context(), t.TempDir(), Options{Flags: map[string]string{"nonsense": "1"}})
	if err == nil {
		s.Close()
	}
	// At its limit, the wait would end by context.DeadlineExceeded.
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "unknown flag: --nonsense") {
		t.Errorf("got %v", err)
	}
}
