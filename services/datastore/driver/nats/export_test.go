package nats

import (
	"context"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
)

func init() { limit.Raise() }

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

// CutOff deletes a key of a tenant's data, and is cut off before the mark of the deletion is written.
func CutOff(ctx context.Context, d driver.Data, key string) error {
	t, key := d.(*tenant), kinePrefix+key
	have, err := t.last(ctx, key)
	if err != nil {
		return err
	}
	text, err := t.encode(entry{Delete: true, PrevRevision: have.kv.ModRevision, KV: have.kv})
	if err != nil {
		return err
	}
	_, err = t.js.Publish(ctx, subjects(t.account.Schema)+nameOf(key), text)
	return err
}
