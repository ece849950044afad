// Package drivertest is the contract every driver keeps, as tests that run against a real server.
package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Tenant is a connection with a tenant's own credentials.
type Tenant interface {
	// Write and Read use a key of a schema, be it the tenant's or a neighbour's.
	Write(ctx context.Context, schema, key, value string) error
	Read(ctx context.Context, schema, key string) (string, error)
	// Administer tries what only the administrator may: making a user, reading everything, reading and writing records of
	// owners. It says what came of each.
	Administer(ctx context.Context) map[string]error
}

// Server is a running database, with a driver connected to it.
type Server struct {
	Driver driver.Driver
	// Connect opens a connection of a tenant.
	Connect func(t *testing.T, a driver.Account, access driver.Access) Tenant
	// Stay opens one that the tenant keeps and makes anew when it is lost, as kine does; nil where those of Connect are such.
	Stay func(t *testing.T, a driver.Account, access driver.Access) Tenant
	// Denied reports whether an error is the database's word that somebody may not do a thing, or may not come in.
	Denied func(err error) bool
	// Revision changes whenever anything about users, roles, grants, owners or data does.
	Revision func(t *testing.T) string
	// Holds lists the users, roles, keys (or rows) and records of owners under an account's names that exist, seen by
	// the administrator, and whether its password is the right one where it has one.
	Holds func(t *testing.T, a driver.Account) []string
	// Removes is what the drop of an account with so many keys removes.
	Removes func(keys int) driver.Removed
	// ReservedSchemas and ReservedUsers are names of the administration.
	ReservedSchemas, ReservedUsers []string
	// Drifts change an account by hand, each in one way, named by sentences that Provision must put right.
	Drifts map[string]func(t *testing.T, a driver.Account)
	// Unseen are those of the Drifts that a driver.Surveyor doesn't notice.
	Unseen []string
	// Disown deletes the records of an account's owner, so that it is as it was made before there were such records.
	Disown func(t *testing.T, a driver.Account)
	// Outlast lets the time pass in which former credentials get in beside new ones; nil where they end at once. Lasting
	// says that they don't depend on the password at all.
	Outlast func(t *testing.T)
	Lasting bool
	// CrashAfter has the driver stop, with an error, before the change that follows n more; a negative n is never.
	CrashAfter func(n int)
	// Stop ends the server as a crash would, Start brings it back with its data.
	Stop, Start func(t *testing.T)
}

// account of a tenant; its owner is named as no schema or user is.
func account(name string) driver.Account { return of("uid-"+name, name, name) }

func of(owner, schema, user string) driver.Account {
	return driver.Account{Owner: owner, Schema: schema, User: user, Password: "not-used-by-all"}
}

// Run runs the contract. The server is used for all of it; subtests run one after the other.
func Run(t *testing.T, s Server) {
	t.Helper()
	c := contract{s}
	for _, part := range []func(*testing.T){
		c.answers, c.names, c.isolation, c.repeats, c.drift, c.certificate, c.password,
		c.counts, c.owned, c.passedOn, c.contested, c.listed, c.unowned, c.adopted, c.crashes,
		c.sizes, c.atOnce, c.seal,
		c.outage, // stops the server
	} {
		part(t)
	}
}

// contract is the parts of Run, each a method.
type contract struct{ Server }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// provision makes an account and connects as its tenant.
func (c contract) provision(t *testing.T, name string) (driver.Account, Tenant) {
	t.Helper()
	a := account(name)
	_, err := c.Driver.Provision(t.Context(), a)
	must(t, err)
	access, err := c.Driver.Access(a, driver.Access{}, time.Now())
	must(t, err)
	return a, c.Connect(t, a, access)
}

// drop removes an account and looks that nothing is left.
func (c contract) drop(t *testing.T, a driver.Account) driver.Removed {
	t.Helper()
	removed, err := c.Driver.Drop(t.Context(), a)
	must(t, err)
	if left := c.Holds(t, a); len(left) > 0 {
		t.Errorf("left after drop: %q", left)
	}
	return removed
}

// survey is the fingerprint of an account, empty when the driver is no driver.Surveyor.
func (c contract) survey(t *testing.T, a driver.Account) string {
	t.Helper()
	surveyor, surveys := c.Driver.(driver.Surveyor)
	if !surveys {
		return ""
	}
	all, err := surveyor.Survey(t.Context())
	must(t, err)
	one, err := surveyor.Survey(t.Context(), a.Schema)
	must(t, err)
	if all[a.Schema] != one[a.Schema] || len(one) > 1 {
		t.Errorf("surveyed by itself, it is %v, among all %v", one, all)
	}
	return one[a.Schema]
}

// Persist takes a step again while the database counts as away, as the service does: one that many ask at once, on a machine that is
// busy, may need longer than a driver waits.
func Persist(step func() error) (err error) {
	for range 20 {
		if err = step(); !errors.Is(err, driver.ErrAway) {
			break
		}
	}
	return err
}

// Eventually calls step until it succeeds, as [poll.Nil] does.
func Eventually(t testing.TB, step func() error) {
	t.Helper()
	poll.Nil(t, "success", step)
}
