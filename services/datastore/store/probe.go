package store

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// probe looks at each DataStore now and then, and more often at those that are away or wrong, so that who waits for one
// goes on soon after it is back. Every replica does so for itself: connections and credentials are its own.
func (r *Registry) probe(ctx context.Context) {
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
		for _, name := range r.Names() {
			st := r.Get(name)
			if st.Paused(r.now()) {
				continue
			}
			if all {
				st.Invalidate()
				r.WakeAll([]events.Key{events.DataStore(name)}, loop.Wake{Kind: WakeDataStore})
			}
			g.Go(func() error {
				// What is wrong is reported by the turns of those who need it.
				_, opened, err := st.Load(ctx)
				if err == nil && opened == nil && (all || st.isAway()) && st.Ping(ctx) == nil && all {
					st.survey(ctx)
				}
				return nil
			})
		}
		_ = g.Wait()
	}
}
