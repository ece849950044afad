package name_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestUpgradeTimeout(t *testing.T) {
	for said, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "0": 0, "0s": 0, "never": 0, "soon": 10 * time.Minute, "-1m": 10 * time.Minute,
	} {
		if got := name.UpgradeTimeout(map[string]string{name.AnnotationUpgradeTimeout: said}); got != want {
			t.Errorf("%q is %s, want %s", said, got, want)
		}
	}
	if got := name.UpgradeTimeout(nil); got != 10*time.Minute {
		t.Errorf("without the annotation it is %s", got)
	}
}

func TestUpgradeThrough(t *testing.T) {
	for said, want := range map[string][]string{"": nil, "v1.34.4": {"v1.34.4"}, "v1.34.4,v1.35.4": {"v1.34.4", "v1.35.4"}, "1.34.4, v1.35.4": {"1.34.4", "v1.35.4"}} {
		if got := name.UpgradeThrough(map[string]string{name.AnnotationUpgradeThrough: said}); !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", said, got, want)
		}
	}
}
