package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/service"
)

func TestParseDeadline(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 0, "24h": 24 * time.Hour, "720h": 720 * time.Hour, "4380h": 4380 * time.Hour} {
		if got, err := service.ParseDeadline(text); got != want || err != nil {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"23h59m", "4381h", "-48h", "2d", "48"} {
		if got, err := service.ParseDeadline(text); got != 0 || err == nil || !strings.Contains(err.Error(), `"`+text+`"`) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
