package driver

import "context"

// Lister is a driver that lists what it keeps for tenants.
type Lister interface {
	// Accounts returns those on record, by owner, schema and user, in this order, without passwords. Where one of an owner's
	// two names isn't on record, as after a crash or a hand, it is empty.
	Accounts(ctx context.Context) ([]Account, error)
}
