package certs

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestWhatAWatchSawIsNewsOrAnEcho(t *testing.T) {
	t.Parallel()
	known := &state.Certs{Secrets: map[string]state.Secret{name.ComponentCA: {ResourceVersion: "20"}, "b": {ResourceVersion: "opaque"}}}
	for sentence, test := range map[string]struct {
		reasons []string
		own     *state.Certs
		news    bool
	}{
		"what was written last is an echo":              {[]string{sighting{name.ComponentCA, "20", false}.String()}, known, false},
		"so is what was written before":                 {[]string{sighting{name.ComponentCA, "9", false}.String()}, known, false},
		"and a deletion before it":                      {[]string{sighting{name.ComponentCA, "19", true}.String()}, known, false},
		"a later version is news":                       {[]string{sighting{name.ComponentCA, "100", false}.String()}, known, true},
		"a later deletion is news":                      {[]string{sighting{name.ComponentCA, "21", true}.String()}, known, true},
		"a Secret missing from the first list is news":  {[]string{sighting{name.ComponentCA, "", true}.String()}, known, true},
		"one piece of news among echoes counts":         {[]string{sighting{name.ComponentCA, "20", false}.String(), sighting{"b", "x", false}.String()}, known, true},
		"a version that is no number counts if unequal": {[]string{sighting{"b", "other", false}.String()}, known, true},
		"what isn't issued yet can't be missed":         {[]string{sighting{name.ComponentAdminKubeconfig, "", true}.String()}, known, false},
		"without a state everything is news":            {[]string{sighting{name.ComponentAdminKubeconfig, "20", false}.String()}, &state.Certs{}, true},
		"a reason nobody understands is looked into":    {[]string{"x"}, known, true},
		"nothing seen is no news":                       {nil, known, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := drifted(test.reasons, test.own); got != test.news {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestWhichFactIsOwed(t *testing.T) {
	t.Parallel()
	certs := func(checksum string) state.Certs {
		return state.Certs{Secrets: map[string]state.Secret{name.ComponentCA: {Checksum: checksum}}}
	}
	for sentence, test := range map[string]struct {
		own      *state.State
		before   string
		after    string
		expected string
	}{
		"the first time, issued":                             {nil, "", "a", event.Issued},
		"after the first stage, issued":                      {&state.State{Inputs: "x-7"}, "a", "a", event.Issued},
		"for a new generation, issued, changed or not":       {&state.State{Step: event.Issued, Inputs: "x-6"}, "a", "b", event.Issued},
		"for the same generation, nothing if all stayed":     {&state.State{Step: event.Issued, Inputs: "x-7"}, "a", "a", ""},
		"for the same generation, rotated if content didn't": {&state.State{Step: event.Issued, Inputs: "y-7"}, "a", "b", event.Rotated},
		"generation 17 isn't generation 7":                   {&state.State{Step: event.Issued, Inputs: "x-17"}, "a", "a", event.Issued},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			before := certs(test.before)
			if got := announce(test.own, &before, "x-7", &result{data: certs(test.after)}); got != test.expected {
				t.Errorf("got %q, want %q", got, test.expected)
			}
		})
	}
}
