package mysql

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// SetHeld has a driver ask held before each change.
func SetHeld(d driver.Driver, held func(context.Context) error) { d.(*database).held = held }

// Repair returns the statements that leave a user just its rights, given what SHOW GRANTS says of it.
func Repair(lines []string, schema, user string) (statements []string) {
	var have grants
	for _, line := range lines {
		have = append(have, parseGrant(line, user)...)
	}
	for _, change := range have.repair(schema, user) {
		statements = append(statements, change[1])
	}
	return statements
}

// Quote makes a name one identifier.
var Quote = quote
