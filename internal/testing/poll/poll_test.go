package poll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, began, refused := 0, time.Now(), errors.New("refused")
		True(t, "the third call", func() bool { calls++; return calls == 3 })
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("three calls took %s", took)
		}
		began = time.Now()
		err := Retry(t.Context(), func() error { return refused })
		if took := time.Since(began); !errors.Is(err, refused) || !errors.Is(err, context.DeadlineExceeded) || took != limit {
			t.Errorf("%v after %s", err, took)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := Retry(ended, func() error { calls++; return refused }); !errors.Is(err, context.Canceled) || calls != 4 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}
