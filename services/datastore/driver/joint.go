package driver

import "context"

// Joint is a driver whose tenants may keep some of what they have in another database of its kind, as the same user below
// the same schema, for whoever serves them reaches both by one Access.
type Joint interface {
	// Joins reports whether an Access of this driver is good for the other's database, too. It asks neither.
	Joins(other Driver) bool
	// Place tells databases apart: drivers that return the same for an account reach it in the same database. It is empty
	// where the account isn't.
	Place(ctx context.Context, a Account) (string, error)
}
