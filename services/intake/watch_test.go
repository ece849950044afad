package intake

import (
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestHasNews(t *testing.T) {
	o := demo()
	known := desired(o, "default", nil, 0, "", clock)
	unplaced, pausing := known, known
	unplaced.Spec.DataStore = ""
	pausing.PausedUntil = clock.Add(time.Hour)
	vanished := known
	vanished.Seen = seenGone
	as := shown(fingerprint(&o.ObjectMeta))
	for what, c := range map[string]struct {
		tenant *state.Tenant
		wake   loop.Wake
		news   bool
	}{
		"what the watch shows and the spec knows":                        {&known, as, false},
		"what the watch shows and the spec doesn't know":                 {&state.Tenant{}, as, true},
		"an object nobody knows":                                         {nil, as, true},
		"an object nobody knows that is gone":                            {nil, loop.Wake{Kind: wakeTenant, Gone: true}, false},
		"an object nobody knows that is another's":                       {nil, loop.Wake{Kind: wakeOutside}, false},
		"an object that is gone":                                         {&known, loop.Wake{Kind: wakeTenant, Gone: true}, true},
		"an object that is gone, as is known":                            {&vanished, loop.Wake{Kind: wakeTenant, Gone: true}, false},
		"an object that became another's":                                {&known, loop.Wake{Kind: wakeOutside}, true},
		"other DataStores, for one that has one":                         {&known, loop.Wake{Kind: wakeDataStores}, false},
		"other DataStores, for one that has none":                        {&unplaced, loop.Wake{Kind: wakeDataStores}, true},
		"anything, for one that has none: it may be there by now":        {&unplaced, as, true},
		"anything, while a pause is to end: its timer may have got lost": {&pausing, as, true},
	} {
		t.Run(what, func(t *testing.T) {
			if news := hasNews(&loop.Turn{Tenant: c.tenant, Wakes: []loop.Wake{c.wake}}); news != c.news {
				t.Error(news)
			}
		})
	}
}
