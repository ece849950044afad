package store

import (
	"context"
	"errors"
	"time"

	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// uncompacted reports whether it is time to compact.
func (st *Store) uncompacted(now time.Time) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.conn != nil && st.away == nil && now.Sub(st.compactedAt) >= compactEvery
}

// compact lets the database give up old history, if its tenants don't do that. What fails is tried again when it is time again, and logged, unless
// the database is away, which is said already.
func (r *Registry) compact(ctx context.Context, st *Store) {
	st.mu.Lock()
	st.compactedAt = r.now()
	st.mu.Unlock()
	var did string
	err := st.Do(ctx, func(d driver.Driver) (err error) {
		if c, ok := d.(driver.Compactor); ok {
			did, err = c.Compact(ctx)
		}
		return err
	})
	if did != "" {
		r.log.Info("datastore has more room", "datastore", st.Name, "did", did)
	}
	var away *intent.Unavailable
	if err != nil && ctx.Err() == nil && !errors.As(err, &away) {
		r.log.Warn("datastore not compacted", "datastore", st.Name, "error", err)
	}
}
