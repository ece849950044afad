package apiserver

import (
	"strings"
	"testing"
	"time"
)

func TestStartWithUnknownFlagFailsAtOnce(t *testing.T) {
	began := time.Now()
	s, err := Start(t.Context(), t.TempDir(), Options{Flags: map[string]string{"nonsense": "1"}})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --nonsense") || time.Since(began) > time.Minute {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
