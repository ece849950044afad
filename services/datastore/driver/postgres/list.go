package postgres

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

var _ driver.Lister = (*postgres)(nil)

// Accounts reads the table of owners.
func (p *postgres) Accounts(ctx context.Context) (all []driver.Account, err error) {
	err = p.do(ctx, func(ctx context.Context, s *sqlpool.Session) (err error) {
		all, err = owners.Accounts(ctx, s)
		return err
	})
	return all, err
}
