package certs

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestWhatAWatchSawIsNewsOrAnEcho(t *testing.T) {
	t.Parallel()
	known := &state.Certs{Secrets: map[string]state.Secret{name.ComponentCA: {ResourceVersion: "20"}, "b": {ResourceVersion: "opaque"}}}
	for sentence, test := range map[string]struct {
		wakes []loop.Wake
		own   *state.Certs
		news  bool
	}{
		"what was written last is an echo":              {[]loop.Wake{wakeOf(name.ComponentCA, "20", false)}, known, false},
		"so is what was written before":                 {[]loop.Wake{wakeOf(name.ComponentCA, "9", false)}, known, false},
		"and a deletion before it":                      {[]loop.Wake{wakeOf(name.ComponentCA, "19", true)}, known, false},
		"a later version is news":                       {[]loop.Wake{wakeOf(name.ComponentCA, "100", false)}, known, true},
		"a later deletion is news":                      {[]loop.Wake{wakeOf(name.ComponentCA, "21", true)}, known, true},
		"a Secret missing from the first list is news":  {[]loop.Wake{wakeOf(name.ComponentCA, "", true)}, known, true},
		"one piece of news among echoes counts":         {[]loop.Wake{wakeOf(name.ComponentCA, "20", false), wakeOf("b", "x", false)}, known, true},
		"a version that is no number counts if unequal": {[]loop.Wake{wakeOf("b", "other", false)}, known, true},
		"what isn't issued yet can't be missed":         {[]loop.Wake{wakeOf(name.ComponentAdminKubeconfig, "", true)}, known, false},
		"without a state everything is news":            {[]loop.Wake{wakeOf(name.ComponentAdminKubeconfig, "20", false)}, &state.Certs{}, true},
		"a wake nobody understands is looked into":      {[]loop.Wake{{Kind: "x"}}, known, true},
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

func TestWhichFactIsOwed(t *testing.T) {
	t.Parallel()
	certs := func(issuedFor int64, checksum string) *state.Certs {
		return &state.Certs{IssuedFor: issuedFor, Secrets: map[string]state.Secret{name.ComponentCA: {Checksum: checksum}}}
	}
	for sentence, test := range map[string]struct {
		before, after *state.Certs
		expected      string
	}{
		"the first time, issued":                             {&state.Certs{}, certs(7, "a"), event.Issued},
		"after the first stage, issued":                      {certs(0, "a"), certs(7, "a"), event.Issued},
		"for a new generation, issued, changed or not":       {certs(6, "a"), certs(7, "b"), event.Issued},
		"for the same generation, nothing if all stayed":     {certs(7, "a"), certs(7, "a"), ""},
		"for the same generation, rotated if content didn't": {certs(7, "a"), certs(7, "b"), event.Rotated},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := announce(test.before, test.after); got != test.expected {
				t.Errorf("got %q, want %q", got, test.expected)
			}
		})
	}
}
