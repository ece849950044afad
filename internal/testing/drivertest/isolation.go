package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// isolation shows that tenants reach their own data and nobody else's.
func (c contract) isolation(t *testing.T) {
	t.Helper()
	d := c.Driver
	// An underscore stands for any character where MySQL grants rights.
	for _, pair := range [][2]string{{"one", "two"}, {"ab", "abc"}, {"ab-", "ab"}, {"ab.", "ab"}, {"ab_", "ab"}, {"ab_", "abc"}, {"a_b", "axb"}, {"A", "a"}} {
		if d.Validate(account(pair[0])) != nil {
			continue // the database has no such names
		}
		t.Run(fmt.Sprintf("tenants %q and %q reach their own data and not each other's", pair[0], pair[1]), func(t *testing.T) {
			a, ta := c.provision(t, pair[0])
			b, tb := c.provision(t, pair[1])
			for _, own := range []struct {
				account driver.Account
				tenant  Tenant
				other   driver.Account
			}{{a, ta, b}, {b, tb, a}} {
				must(t, own.tenant.Write(t.Context(), own.account.Schema, "key", own.account.Schema))
				value, err := own.tenant.Read(t.Context(), own.account.Schema, "key")
				must(t, err)
				if value != own.account.Schema {
					t.Errorf("%s reads %q", own.account.Schema, value)
				}
				err = own.tenant.Write(t.Context(), own.other.Schema, "key", "foreign")
				c.denied(t, own.account.Schema+" writes to "+own.other.Schema, err)
				_, err = own.tenant.Read(t.Context(), own.other.Schema, "key")
				c.denied(t, own.account.Schema+" reads of "+own.other.Schema, err)
				for what, err := range own.tenant.Administer(t.Context()) {
					c.denied(t, own.account.Schema+": "+what, err)
				}
			}
			c.drop(t, a)
			if value, err := tb.Read(t.Context(), b.Schema, "key"); err != nil || value != b.Schema {
				t.Errorf("after the drop of %s, %s reads %q: %v", a.Schema, b.Schema, value, err)
			}
			c.denied(t, a.Schema+" writes after its drop", ta.Write(t.Context(), a.Schema, "key", "ghost"))
			c.drop(t, b)
		})
	}
}

// denied fails the test unless something came to the database's no, and to no other error.
func (c contract) denied(t *testing.T, what string, err error) {
	t.Helper()
	if !c.Denied(err) {
		t.Errorf("%s: %v", what, err)
	}
}

// names shows that names made of UIDs are valid, and that others' names are refused.
func (c contract) names(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("names made of UIDs are fit, and differ", func(t *testing.T) {
		seen := map[string]bool{}
		for _, uid := range []string{"0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e", "0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3f"} {
			schema, user := d.Names(uid)
			must(t, d.Validate(of(uid, schema, user)))
			if seen[schema] || seen[user] {
				t.Errorf("%s and %s are another's", schema, user)
			}
			seen[schema], seen[user] = true, true
		}
	})
	t.Run("names that reach beyond a tenant's own are refused and touch nothing", func(t *testing.T) {
		before := c.Revision(t)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		var names []string
		for _, name := range HostileNames() {
			if d.Validate(of("uid", name, "fine")) != nil && d.Validate(of("uid", "fine", name)) != nil {
				names = append(names, name)
			}
		}
		random := rand.New(rand.NewPCG(seed, 1))
		for range 300 {
			b := make([]byte, 1+random.IntN(12))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			b[random.IntN(len(b))] = "/\x00 '\"`;$\\"[random.IntN(9)]
			names = append(names, string(b))
		}
		refused := func(a driver.Account, field string) {
			t.Helper()
			var bad *driver.NameError
			_, provision := d.Provision(t.Context(), a)
			_, drop := d.Drop(t.Context(), a)
			if !errors.As(provision, &bad) || !errors.As(drop, &bad) || !errors.As(d.Validate(a), &bad) || !errors.As(d.Claim(t.Context(), a), &bad) {
				t.Errorf("%+v: provision %v, drop %v", a, provision, drop)
			} else if bad.Field != field {
				t.Errorf("%+v: names field %s", a, bad.Field)
			}
		}
		for _, n := range slices.Concat(names, c.ReservedSchemas) {
			refused(of("uid", n, "fine"), driver.FieldSchema)
		}
		for _, n := range slices.Concat(names, c.ReservedUsers) {
			refused(of("uid", "fine", n), driver.FieldUser)
		}
		if after := c.Revision(t); after != before {
			t.Errorf("revision %s to %s", before, after)
		}
	})
}
