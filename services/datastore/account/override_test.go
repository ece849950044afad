package account

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestPodsUseADataStoreUntilAllAreKnownNotTo(t *testing.T) {
	for sentence, test := range map[string]struct {
		pods *state.State
		uses []string
		want bool
	}{
		"nothing is known of them":            {nil, nil, true},
		"they are of an earlier generation":   {&state.State{Generation: 2, Step: event.Available}, nil, true},
		"they are being rolled out":           {&state.State{Generation: 3, Step: event.Exposed}, nil, true},
		"they use it":                         {&state.State{Generation: 3, Step: event.Available}, []string{"b"}, true},
		"they use another one":                {&state.State{Generation: 3, Step: event.Available}, []string{"c"}, false},
		"there are none":                      {&state.State{Generation: 3, Step: event.Slept}, nil, false},
		"this generation has been overtaken":  {&state.State{Generation: 4, Step: event.Available}, nil, false},
		"none is ready any more, of whatever": {&state.State{Generation: 3, Step: event.Degraded}, nil, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := uses(test.pods, state.Workload{Overrides: test.uses}, 3, "b"); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
