package mysql

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

var _ driver.Lister = (*database)(nil)

// Accounts reads the table of owners.
func (d *database) Accounts(ctx context.Context) (all []driver.Account, err error) {
	err = d.do(ctx, func(ctx context.Context, s *sqlpool.Session) (err error) {
		all, err = owners.Accounts(ctx, s)
		return err
	})
	return all, err
}
