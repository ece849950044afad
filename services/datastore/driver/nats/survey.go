package nats

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

var _ driver.Surveyor = (*server)(nil)

// Survey asks for records and account of each schema, and for the buckets of all.
func (s *server) Survey(ctx context.Context, schemas ...string) (map[string]string, error) {
	seen := map[string]string{}
	err := s.do(ctx, func(ctx context.Context, p place) (err error) {
		clear(seen)
		all := schemas
		if len(all) == 0 {
			if all, err = p.schemas(ctx); err != nil {
				return err
			}
		}
		buckets := map[string]string{}
		if err := s.buckets(ctx, p, all, func(schema string, d bucketDetail) { buckets[schema] = string(d.Config) }); err != nil {
			return err
		}
		var mu sync.Mutex
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(callers)
		for _, schema := range all {
			g.Go(func() error {
				found, err := s.surveyOne(ctx, p, schema)
				if err == nil && found != nil {
					mu.Lock()
					defer mu.Unlock()
					seen[schema] = driver.Fingerprint(append(found, buckets[schema])...)
				}
				return err
			})
		}
		return g.Wait()
	})
	return seen, err
}

// surveyOne is what is on record of a schema, and its account; nil if it isn't on record.
func (s *server) surveyOne(ctx context.Context, p place, schema string) ([]string, error) {
	of, err := p.record(ctx, keySchema(driver.Account{Schema: schema}))
	if err != nil || !of.Recorded {
		return nil, noRecords(err)
	}
	found := []string{of.Value, of.user, "", ""}
	if of.user != "" {
		user, err := p.record(ctx, keyUser(driver.Account{User: of.user}))
		if err != nil {
			return nil, noRecords(err)
		}
		found[2] = user.Value
	}
	if s.login.operator != nil {
		token, err := p.token(ctx, accountOf(schema))
		if err != nil {
			return nil, err
		}
		if found[3] = token; overdue(token, s.now()) {
			found = append(found, "overdue") // so that the tenant's turn comes, which takes the former key out
		}
	}
	return found, nil
}
