package robustness

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestAStrikeThatGetsNoAnswerDoesNotHoldUpThoseAfterIt(t *testing.T) {
	h, err := NewHistory(filepath.Join(t.TempDir(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	unanswered := Fault{Name: "unanswered", strike: func(ctx context.Context, _ *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
		<-ctx.Done()
		return "", nil, ctx.Err()
	}}
	next := Fault{Name: "next", strike: func(ctx context.Context, _ *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
		return "it", nil, ctx.Err()
	}}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		if err := Run(ctx, &Site{}, []Strike{{Fault: unanswered}, {Fault: next}}, h); err != nil {
			t.Error(err)
		}
	})
	all := h.Records()
	if len(all) != 2 || all[0].Detail == "" || all[1].What != "next" || all[1].Detail != "" {
		t.Errorf("%v", all)
	}
}
