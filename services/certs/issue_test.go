package certs

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
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

func TestWhenAStateIsUpToDate(t *testing.T) {
	t.Parallel()
	waits := waitFor(pki.Input{})
	for sentence, test := range map[string]struct {
		own  *state.State
		wait state.Wait
		is   bool
	}{
		"without a state, it isn't":                      {nil, state.Wait{}, false},
		"the same inputs and nothing to wait for":        {&state.State{Inputs: "x-7"}, state.Wait{}, true},
		"the same inputs, waiting for the same":          {&state.State{Inputs: "x-7", Wait: waits}, waits, true},
		"whatever the words are":                         {&state.State{Inputs: "x-7", Wait: state.Wait{Reason: waits.Reason, Text: "x"}}, waits, true},
		"other inputs":                                   {&state.State{Inputs: "x-6"}, state.Wait{}, false},
		"after a failure":                                {&state.State{Inputs: "x-7", Failure: &state.Failure{}}, state.Wait{}, false},
		"what was waited for is there":                   {&state.State{Inputs: "x-7", Wait: waits}, state.Wait{}, false},
		"a wait of the version before, still to be done": {&state.State{Inputs: "x-7", Wait: state.Wait{Text: "old"}}, waits, false},
		"a wait of the version before that has its end":  {&state.State{Inputs: "x-7", Wait: state.Wait{Text: "old"}}, state.Wait{}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := upToDate(test.own, "x-7", test.wait); got != test.is {
				t.Errorf("got %t", got)
			}
		})
	}
}
