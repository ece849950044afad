package postgres

import (
	"context"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

func init() { limit.Raise() }

// SetHeld has a driver ask held before each change.
func SetHeld(d driver.Driver, held func(context.Context) error) { d.(*postgres).held = held }

// Quote makes a name one identifier.
var Quote = quote
