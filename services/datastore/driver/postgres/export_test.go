package postgres

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// SetHeld has a driver ask held before each change.
func SetHeld(d driver.Driver, held func(context.Context) error) { d.(*postgres).held = held }

// Quote makes a name one identifier.
var Quote = quote
