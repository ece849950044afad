package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/fence"
)

func TestCheck(t *testing.T) {
	if err := fence.Check(t.Context()); err != nil {
		t.Errorf("without a fence: %v", err)
	}
	held := true
	ctx, cancel := context.WithCancel(fence.With(t.Context(), func() bool { return held }))
	defer cancel()
	if err := fence.Check(ctx); err != nil {
		t.Errorf("while the lease is held: %v", err)
	}
	held = false
	if err := fence.Check(ctx); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("after the lease is over: %v", err)
	}
}
