package intake

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

func TestAPartitionThatIsGainedIsWokenAsItWasSeen(t *testing.T) {
	s := &svc{}
	s.index.reset()
	var a, b, foreign events.Key // a stays, the others are gained
	for i := 0; a.Name == "" || b.Name == "" || foreign.Name == ""; i++ {
		switch key := events.Tenant("default", fmt.Sprintf("t%d", i)); {
		case key.Partition() == 1:
			a = key
		case key.Partition() == 2 && b.Name == "":
			b = key
		case key.Partition() == 2:
			foreign = key
		}
	}
	dataStore, other := events.DataStore("default"), events.DataStore("default")
	for i := 0; other.Partition() == dataStore.Partition(); i++ {
		other = events.DataStore(fmt.Sprintf("d%d", i))
	}
	s.index.see(a, seen{ours: true, fingerprint: "as"})
	s.index.see(b, seen{ours: true, fingerprint: "bs"})
	s.index.see(foreign, seen{})
	s.index.know(dataStore.Name, &store{})
	s.index.know(other.Name, &store{})

	held, woken := partition.Of(1), make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.takeOver(ctx, held, func(key events.Key, w loop.Wake) { woken <- fmt.Sprintf("%s %s %s", key, w.Kind, w.Version) })
	}()
	if got, want := <-woken, a.String()+" tenant as"; got != want {
		t.Errorf("at first %q was woken, want %q", got, want)
	}
	s.index.expect(a, "as")
	s.index.expect(b, "bs") // of before: another replica may have accepted something else since
	gained := []int{1, 2, dataStore.Partition(), admissionKey.Partition()}
	held.Hold(gained)
	want := []string{
		b.String() + " tenant bs", foreign.String() + " outside ", dataStore.String() + " object ", admissionKey.String() + " object ",
	}
	if slices.Contains(gained, other.Partition()) {
		want = append(want, other.String()+" object ")
	}
	var got []string
	for range want {
		got = append(got, <-woken)
	}
	cancel()
	<-done
	close(woken)
	for more := range woken {
		got = append(got, more)
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("woken %q, want %q", got, want)
	}
	if w := []loop.Wake{shown("bs")}; s.index.known(b, w) {
		t.Error("what this replica accepted in another term passes for known")
	}
	if w := []loop.Wake{shown("as")}; !s.index.known(a, w) {
		t.Error("what it accepted in this term is news")
	}
}

func TestHasNews(t *testing.T) {
	o := demo()
	known := desired(o, "default", nil, 0, "", clock)
	unplaced, pausing := known, known
	unplaced.Spec.DataStore = ""
	pausing.PausedUntil = clock.Add(time.Hour)
	sleeping, overslept := known, known
	sleeping.Sleep.Until, overslept.Sleep.Until = clock.Add(time.Hour), clock
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
		"an object whose schedule changes nothing yet":                   {&sleeping, as, false},
		"an object whose schedule should have changed something":         {&overslept, as, true},
	} {
		t.Run(what, func(t *testing.T) {
			if news := hasNews(&loop.Turn{Tenant: c.tenant, Wakes: []loop.Wake{c.wake}}, clock); news != c.news {
				t.Error(news)
			}
		})
	}
}
