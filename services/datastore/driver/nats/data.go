package nats

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/kine"
)

var _ driver.DataAccess = (*server)(nil)

// Data connects as the kine beside the tenant's API server does.
func (s *server) Data(ctx context.Context, a driver.Account, access driver.Access) (driver.Data, error) {
	if err := s.Validate(a); err != nil {
		return nil, err
	}
	// It is told soon when the servers are away, and how many keep the bucket.
	if err := s.Check(ctx); err != nil {
		return nil, err
	}
	tenant, err := kine.Open(ctx, kine.Options{
		Endpoint: func(credentials string) string {
			return fmt.Sprintf("nats://?contextFile=%s&bucket=%s&replicas=%d&noEmbed", credentials, a.Schema, s.Replicas())
		},
		Access: access, Fits: fits, Classify: classify,
	})
	if err != nil {
		return nil, err
	}
	f := &follower{Tenant: tenant, s: s, account: a, access: access}
	f.writer = &writer{enter: f.enter, indexed: tenant.Settle, name: a.Schema}
	tenant.Write = f.writer.write
	return f, nil
}

// fits refuses what isn't text to kine, which keeps a key within JSON.
func fits(key string) error {
	if !utf8.ValidString(key) {
		return errors.New("kine's keys in NATS are UTF-8; delete or rename the object in the source")
	}
	return nil
}
