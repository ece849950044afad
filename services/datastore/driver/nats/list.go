package nats

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/owner"
)

var _ driver.Lister = (*server)(nil)

// Accounts reads the records of schemas and users, each from its leader.
func (s *server) Accounts(ctx context.Context) (all []driver.Account, err error) {
	err = s.do(ctx, func(ctx context.Context, p place) error {
		schemas, err := p.recordsOf(ctx, keySchema(driver.Account{}))
		if err != nil {
			return err
		}
		users, err := p.recordsOf(ctx, keyUser(driver.Account{}))
		all = owner.List(schemas, users)
		return err
	})
	return all, err
}

// recordsOf are the owners of all names of a kind.
func (p place) recordsOf(ctx context.Context, kind string) (map[string]string, error) {
	names, err := p.names(ctx, kind)
	if err != nil {
		return nil, err
	}
	owners := map[string]string{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(callers)
	for _, n := range names {
		g.Go(func() error {
			r, err := p.record(ctx, kind+n)
			if err == nil && r.Recorded {
				mu.Lock()
				defer mu.Unlock()
				owners[n] = r.Value
			}
			return noRecords(err)
		})
	}
	return owners, g.Wait()
}
