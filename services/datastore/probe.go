package datastore

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// probeEvery is how often a DataStore is looked at while nobody uses it.
const probeEvery = 30 * time.Second

// probe looks at each DataStore now and then, and more often at those that are away or wrong, so that who waits for one
// goes on soon after it is back. Every replica does so for itself: connections and credentials are its own.
func (s *stores) probe(ctx context.Context) {
	tick := time.NewTicker(longestPause)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all := n%int(probeEvery/longestPause) == 0
		var g errgroup.Group
		for _, name := range s.names() {
			st := s.get(name)
			if st.paused(s.now()) {
				continue
			}
			if all {
				st.invalidate()
				s.wakeAll([]events.Key{events.DataStore(name)}, loop.Wake{Kind: wakeDataStore})
			}
			g.Go(func() error {
				// What is wrong is reported by the turns of those who need it.
				_, opened, err := st.load(ctx)
				if err == nil && opened == nil && (all || st.isAway()) && st.ping(ctx) == nil && all {
					st.survey(ctx)
				}
				return nil
			})
		}
		_ = g.Wait()
	}
}
