// Package owner decides whose something is, by what a database has on record and what it holds.
package owner

import (
	"errors"
	"regexp"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Record of whose something is, as it was read.
type Record struct {
	Value    string
	Recorded bool
}

// Is reports whether it is this account's.
func (r Record) Is(a driver.Account) bool { return r.Recorded && r.Value == a.Owner }

// IsOther reports whether it is on record as another's.
func (r Record) IsOther(a driver.Account) bool { return r.Recorded && r.Value != a.Owner }

// Records are those of an account's schema and user.
type Records struct{ Schema, User Record }

// Refuse returns a *driver.TakenError when one of both is another tenant's.
func (r Records) Refuse(a driver.Account) error {
	switch {
	case r.Schema.IsOther(a):
		return TakenSchema(a, driver.TakenByTenant)
	case r.User.IsOther(a):
		return TakenUser(a, driver.TakenByTenant)
	}
	return nil
}

// PassOn reports whether the records must be changed for an account to be passed on. A *driver.TakenError means that it isn't its owner's.
func (r Records) PassOn(a driver.Account, to string) (needed bool, err error) {
	next := a
	next.Owner = to
	if err := errors.Join(Without(a), Without(next)); err != nil {
		return false, err
	}
	for _, of := range []struct {
		record Record
		taken  func(a driver.Account, message string) error
	}{{r.Schema, TakenSchema}, {r.User, TakenUser}} {
		switch {
		case of.record.Is(next):
		case of.record.Is(a):
			needed = true
		case of.record.Recorded:
			return false, of.taken(a, driver.TakenByTenant)
		default:
			return false, of.taken(a, driver.TakenUnrecorded)
		}
	}
	return needed, nil
}

// Certain reports whether the account's schema and user are its owner's beyond doubt although no record says so: the service
// remembers to have made them, or they have the names that names makes of the owner's UID.
func Certain(a driver.Account, names func(uid string) (schema, user string)) (ofSchema, ofUser bool) {
	schema, user := names(a.Owner)
	return a.Remembered || schema == a.Schema, a.Remembered || user == a.User
}

// TakenSchema refuses an account its schema.
func TakenSchema(a driver.Account, message string) error {
	return &driver.TakenError{Field: driver.FieldSchema, Value: a.Schema, Message: message}
}

// TakenUser refuses an account its user.
func TakenUser(a driver.Account, message string) error {
	return &driver.TakenError{Field: driver.FieldUser, Value: a.User, Message: message}
}

// Without returns an error for an account that has no owner, for then nothing would be kept apart.
func Without(a driver.Account) error {
	if a.Owner == "" {
		return errors.New("the account has no owner")
	}
	return nil
}

// plain is what neither kine's URLs nor any SQL would take for something else.
var plain = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

// WithoutPassword returns an error, which doesn't hold it, for an account whose password kine couldn't use.
func WithoutPassword(a driver.Account) error {
	switch {
	case a.Password == "":
		return errors.New("the account has no password")
	case !plain.MatchString(a.Password):
		return errors.New("the account's password must be letters, digits, '.', '_', '~' and '-': kine takes it out of a URL")
	}
	return nil
}
