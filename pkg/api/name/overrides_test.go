package name_test

import (
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestOverrides(t *testing.T) {
	for value, want := range map[string][]string{
		"":                nil,
		"b":               {"b"},
		"b,a":             {"a", "b"},
		"b, a,b,,x/y,../": {"a", "b"},
	} {
		got := name.Overrides(map[string]string{name.AnnotationDatastoreOverrides: value})
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q", value, got)
		}
		if again := name.Overrides(map[string]string{name.AnnotationDatastoreOverrides: name.OverridesValue(got)}); !slices.Equal(got, again) {
			t.Errorf("%q: %q", value, again)
		}
	}
}
