package mysql

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

func init() { limit.Raise() }

// SetHeld has a driver ask held before each change.
func SetHeld(d driver.Driver, held func(context.Context) error) { d.(*database).held = held }

// Repair returns the statements that leave a user just its rights, given what SHOW GRANTS says of it.
func Repair(lines []string, a driver.Account) (statements []string) {
	for _, change := range read(lines, a.User).repair(a.Schema, a.User, rightsOf(a)) {
		statements = append(statements, change[1])
	}
	return statements
}

// Outdates reports whether open connections of a user may more, or less, than they should, given what SHOW GRANTS says of it.
func Outdates(lines []string, a driver.Account) bool { return read(lines, a.User).outdates(a) }

func read(lines []string, user string) (have grants) {
	for _, line := range lines {
		have = append(have, parseGrant(line, user)...)
	}
	return have
}

// Quote makes a name one identifier.
var Quote = quote
