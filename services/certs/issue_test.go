package certs

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

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
