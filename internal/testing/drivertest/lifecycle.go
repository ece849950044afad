package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// answers shows that a database that is there passes the check, which also prepares it.
func (c contract) answers(t *testing.T) {
	t.Helper()
	t.Run("a database that answers passes the check", func(t *testing.T) { must(t, c.Driver.Check(t.Context())) })
}

// counts shows that Drop counts what it removed.
func (c contract) counts(t *testing.T) {
	t.Helper()
	t.Run("drop counts what it removed, and nothing the second time", func(t *testing.T) {
		a, tenant := c.provision(t, "counted")
		for i := range 3 {
			must(t, tenant.Write(t.Context(), a.Schema, fmt.Sprint("key", i), "value"))
		}
		if removed := c.drop(t, a); !maps.Equal(removed, c.Removes(3)) {
			t.Errorf("removed %v, want %v", removed, c.Removes(3))
		}
		if removed := c.drop(t, a); len(removed) != 0 {
			t.Errorf("removed %v from nothing", removed)
		}
	})
}

// crashes shows that a crash between any two changes is recovered from.
func (c contract) crashes(t *testing.T) {
	t.Helper()
	d := c.Driver
	for what, act := range map[string]func(context.Context, driver.Account) error{
		"provision": func(ctx context.Context, a driver.Account) error { _, err := d.Provision(ctx, a); return err },
		"drop":      func(ctx context.Context, a driver.Account) error { _, err := d.Drop(ctx, a); return err },
	} {
		t.Run("a crash at any step of "+what+" is recovered from, and lets nobody else in", func(t *testing.T) {
			defer c.CrashAfter(-1)
			n := 0
			for crashed := true; crashed; n++ {
				for _, then := range []string{"provision", "drop"} {
					a := account("crash")
					if what == "drop" {
						_, tenant := c.provision(t, "crash")
						must(t, tenant.Write(t.Context(), a.Schema, "key", "value"))
					}
					c.CrashAfter(n)
					crashed = act(t.Context(), a) != nil
					c.CrashAfter(-1)
					if len(c.Holds(t, a)) > 0 {
						c.foreign(t, a)
					}
					if then == "provision" {
						_, tenant := c.provision(t, "crash")
						must(t, tenant.Write(t.Context(), a.Schema, "key", "value"))
						if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
							t.Errorf("after %d changes, then all: changed %q: %v", n, changed, err)
						}
					}
					c.drop(t, a)
				}
			}
			t.Logf("%d changes", n-1)
			if n < 4 {
				t.Errorf("no more than %d changes", n-1)
			}
		})
	}
}

// outage shows that an outage is noticed soon, and its end.
func (c contract) outage(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("a database that is away is noticed soon, and used again when it is back", func(t *testing.T) {
		a, _ := c.provision(t, "outage")
		c.Stop(t)
		for what, step := range map[string]func() error{
			"check":     func() error { return d.Check(t.Context()) },
			"provision": func() error { _, err := d.Provision(t.Context(), a); return err },
			"drop":      func() error { _, err := d.Drop(t.Context(), a); return err },
		} {
			began := time.Now()
			if err := step(); !errors.Is(err, driver.ErrAway) {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(began); took > soon {
				t.Errorf("%s took %s", what, took)
			}
		}
		c.Start(t)
		Eventually(t, func() error { return d.Check(t.Context()) })
		_, err := d.Provision(t.Context(), a)
		must(t, err)
		c.drop(t, a)
	})
}
