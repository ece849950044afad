package certs

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/generator"
)

func TestWhatAWatchSawIsNewsOrAnEcho(t *testing.T) {
	t.Parallel()
	seen := func(component, version string, gone bool) loop.Wake {
		return loop.Wake{Kind: wakeSecret, Object: component, Version: version, Gone: gone}
	}
	generated := func(n, version string, gone bool) []loop.Wake {
		return []loop.Wake{{Kind: generator.WakeKubeconfig, Object: n, Version: version, Gone: gone}}
	}
	known := &state.Certs{
		Secrets:   map[string]state.Secret{name.ComponentCA: {ResourceVersion: "20"}, "b": {ResourceVersion: "opaque"}},
		Generated: map[string]state.Generated{"viewer": {Secret: state.Secret{ResourceVersion: "30"}}},
	}
	for sentence, test := range map[string]struct {
		wakes []loop.Wake
		own   *state.Certs
		news  bool
	}{
		"what was written last is an echo":              {[]loop.Wake{seen(name.ComponentCA, "20", false)}, known, false},
		"so is what was written before":                 {[]loop.Wake{seen(name.ComponentCA, "9", false)}, known, false},
		"and a deletion before it":                      {[]loop.Wake{seen(name.ComponentCA, "19", true)}, known, false},
		"a later version is news":                       {[]loop.Wake{seen(name.ComponentCA, "100", false)}, known, true},
		"a later deletion is news":                      {[]loop.Wake{seen(name.ComponentCA, "21", true)}, known, true},
		"a Secret missing from the first list is news":  {[]loop.Wake{seen(name.ComponentCA, "", true)}, known, true},
		"one piece of news among echoes counts":         {[]loop.Wake{seen(name.ComponentCA, "20", false), seen("b", "x", false)}, known, true},
		"a version that is no number counts if unequal": {[]loop.Wake{seen("b", "other", false)}, known, true},
		"what isn't issued yet can't be missed":         {[]loop.Wake{seen(name.ComponentAdminKubeconfig, "", true)}, known, false},
		"without a state everything is news":            {[]loop.Wake{seen(name.ComponentAdminKubeconfig, "20", false)}, &state.Certs{}, true},
		"a wake nobody understands is looked into":      {[]loop.Wake{{Kind: "x"}}, known, true},
		"a kubeconfig of a generator as it was written": {generated("viewer", "30", false), known, false},
		"a later version of it is news":                 {generated("viewer", "31", false), known, true},
		"one that is gone is news":                      {generated("viewer", "", true), known, true},
		"one nobody knows is the generators' concern":   {generated("other", "31", false), known, false},
		"nothing seen is no news":                       {nil, known, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := drifted(test.wakes, test.own); got != test.news {
				t.Errorf("got %t", got)
			}
		})
	}
}
