package nats

import (
	"context"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// SetHeld has a driver ask held before each change.
func SetHeld(d driver.Driver, held func(context.Context) error) { d.(*server).held = held }

// AccountOf is the public key of a schema's account, "stoker records" that of the administrator's.
var AccountOf = accountOf

// SetNow has a driver take another time for the present.
func SetNow(d driver.Driver, now func() time.Time) { d.(*server).now = now }

// Heard calls f as a driver does with an operator, or without one.
func Heard(ctx context.Context, withOperator bool, f func() error) error {
	s := &server{}
	if withOperator {
		s.login.operator = &operator{}
	}
	return s.heard(ctx, f)
}
