package account

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

func TestTouched(t *testing.T) {
	own := state.Datastore{DataStore: "main", Account: "as left", Config: state.Secret{ResourceVersion: "5"}, Certificate: state.Secret{ResourceVersion: "6"}}
	for sentence, test := range map[string]struct {
		wake loop.Wake
		want bool
	}{
		"the echo of our own write is no drift":       {loop.Wake{Kind: WakeSecret, Object: name.ComponentDatastoreConfig, Version: "5"}, false},
		"each Secret has its own version":             {loop.Wake{Kind: WakeSecret, Object: name.ComponentDatastoreCertificate, Version: "5"}, true},
		"another version is drift":                    {loop.Wake{Kind: WakeSecret, Object: name.ComponentDatastoreConfig, Version: "7"}, true},
		"a deletion is drift":                         {loop.Wake{Kind: WakeSecret, Object: name.ComponentDatastoreConfig, Version: "5", Gone: true}, true},
		"a change of the DataStore touches no Secret": {loop.Wake{Kind: store.WakeDataStore}, false},
		"an account that is another is drift":         {loop.Wake{Kind: store.WakeAccount, Object: "main", Version: "another"}, true},
		"one that was put right meanwhile is not":     {loop.Wake{Kind: store.WakeAccount, Object: "main", Version: "as left"}, false},
		"one that is gone is drift":                   {loop.Wake{Kind: store.WakeAccount, Object: "main"}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := Touched([]loop.Wake{test.wake}, own); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestPodsHaveCredentialsOnceAllAreKnownTo(t *testing.T) {
	for sentence, test := range map[string]struct {
		pods *state.State
		have []string
		want bool
	}{
		"nothing is known of them":       {nil, []string{"new"}, false},
		"they are being rolled out":      {&state.State{Step: event.Exposed}, []string{"new"}, false},
		"all have them":                  {&state.State{Step: event.Available}, []string{"new"}, true},
		"they have those of before":      {&state.State{Step: event.Available}, []string{"old"}, false},
		"some may have those of before":  {&state.State{Step: event.Available}, []string{"new", "old"}, false},
		"there are none":                 {&state.State{Step: event.Slept}, []string{"new"}, true},
		"it isn't known which they have": {&state.State{Step: event.Available}, nil, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := rolledOut(test.pods, state.Workload{Credentials: test.have}, "new"); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
