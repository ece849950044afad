package store

// No event says that somebody changed users and grants in a database. All accounts of a DataStore are therefore compared, by
// a few queries for all of them, with how they were left; tenants whose account is another are woken, and put right by their
// own turn.

import (
	"context"
	"maps"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// survey looks at the accounts of this replica's tenants, if the driver can. What is wrong with the database is reported by the
// turns of those who need it.
func (st *Store) survey(ctx context.Context) {
	st.mu.Lock()
	tenants := maps.Clone(st.tenants) // before the database is asked: who is provisioned meanwhile isn't compared with the past
	st.mu.Unlock()
	var seen map[string]string
	if err := st.Do(ctx, func(d driver.Driver) (err error) {
		if surveyor, ok := d.(driver.Surveyor); ok {
			seen, err = surveyor.Survey(ctx)
		}
		return err
	}); err != nil || seen == nil {
		return
	}
	for key, left := range tenants {
		if now := seen[left.schema]; left.fingerprint != "" && now != left.fingerprint {
			st.of.WakeAll([]events.Key{key}, loop.Wake{Kind: WakeAccount, Object: st.Name, Version: now})
		}
	}
}
