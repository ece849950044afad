package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// owned shows that what is on record as one tenant's, no other gets.
func (c contract) owned(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("what is one tenant's, another can neither get nor drop, until it is dropped", func(t *testing.T) {
		a, tenant := c.provision(t, "owned")
		must(t, tenant.Write(t.Context(), a.Schema, "key", "kept"))
		c.foreign(t, a)
		if value, err := tenant.Read(t.Context(), a.Schema, "key"); err != nil || value != "kept" {
			t.Errorf("the tenant reads %q: %v", value, err)
		}
		c.drop(t, a)
		a.Owner = "uid-next"
		_, err := d.Provision(t.Context(), a)
		must(t, err)
		c.drop(t, a)
	})
	t.Run("a name that is another tenant's UID is that tenant's, or nobody's but the first one's", func(t *testing.T) {
		a := of("uid-a", "uid-a", "uid-a")
		_, err := d.Provision(t.Context(), a)
		must(t, err)
		c.foreign(t, a)
		c.drop(t, a)
		thief := of("uid-thief", "uid-a", "thief")
		_, err = d.Provision(t.Context(), thief)
		must(t, err)
		var taken *driver.TakenError
		if _, err := d.Provision(t.Context(), a); !errors.As(err, &taken) {
			t.Error(err)
		}
		c.drop(t, thief)
	})
}

// passedOn shows that an account goes from one owner to the next, with all that is in it, and back.
func (c contract) passedOn(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("what is passed on is the next owner's, with what is in it, and no longer the first one's", func(t *testing.T) {
		a, tenant := c.provision(t, "passed")
		must(t, tenant.Write(t.Context(), a.Schema, "key", "kept"))
		next := a
		next.Owner = "held-by-nobody"
		before := c.Holds(t, a)
		must(t, d.PassOn(t.Context(), a, next.Owner))
		must(t, d.PassOn(t.Context(), a, next.Owner)) // it does nothing
		var taken *driver.TakenError
		if err := d.PassOn(t.Context(), a, "uid-third"); !errors.As(err, &taken) {
			t.Errorf("passed on by who has it no longer: %v", err)
		}
		c.foreignTo(t, a, a)
		if removed, err := d.Drop(t.Context(), a); err != nil || len(removed) > 0 {
			t.Errorf("the drop by the former owner removed %v: %v", removed, err)
		}
		if value, err := tenant.Read(t.Context(), a.Schema, "key"); err != nil || value != "kept" {
			t.Errorf("the tenant reads %q: %v", value, err)
		}
		must(t, d.PassOn(t.Context(), next, a.Owner)) // and back
		if after := c.Holds(t, a); !slices.Equal(before, after) {
			t.Errorf("before %q, after %q", before, after)
		}
		must(t, d.PassOn(t.Context(), a, "uid-elsewhere"))
		a.Owner = "uid-elsewhere"
		_, err := d.Provision(t.Context(), a)
		must(t, err)
		access, err := d.Access(a, driver.Access{}, time.Now())
		must(t, err)
		if value, err := c.Connect(t, a, access).Read(t.Context(), a.Schema, "key"); err != nil || value != "kept" {
			t.Errorf("with the next owner's access, the tenant reads %q: %v", value, err)
		}
		if removed := c.drop(t, a); !maps.Equal(removed, c.Removes(1)) {
			t.Errorf("removed %v, want %v", removed, c.Removes(1))
		}
	})
	t.Run("what nobody has, or has no owner, isn't passed on", func(t *testing.T) {
		before := c.Revision(t)
		var taken *driver.TakenError
		if err := d.PassOn(t.Context(), account("absent"), "uid-next"); !errors.As(err, &taken) {
			t.Error(err)
		}
		if err := d.PassOn(t.Context(), account("absent"), ""); err == nil {
			t.Error("passed on to nobody")
		}
		if after := c.Revision(t); after != before {
			t.Errorf("revision %s to %s", before, after)
		}
	})
}

// contested shows that of many who ask for the same one gets it, and what is claimed counts as made.
func (c contract) contested(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("of many who ask for the same at once, one gets it", func(t *testing.T) {
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = d.Provision(t.Context(), of(fmt.Sprint("uid-", i), "wanted", fmt.Sprint("wants", i%4)))
			})
		}
		wg.Wait()
		got := []int{}
		for i, err := range errs {
			var taken *driver.TakenError
			if err == nil {
				got = append(got, i)
			} else if !errors.As(err, &taken) {
				t.Error(err)
			}
		}
		if len(got) != 1 {
			t.Fatalf("%v got it", got)
		}
		for i := range errs {
			removed, err := d.Drop(t.Context(), of(fmt.Sprint("uid-", i), "wanted", fmt.Sprint("wants", i%4)))
			if err != nil || (len(removed) > 0) != (i == got[0]) {
				t.Errorf("%d, when %v got it: removed %v, %v", i, got, removed, err)
			}
		}
	})
	t.Run("what is claimed is kept from others, and dropped as one that was made", func(t *testing.T) {
		a := account("claimed")
		must(t, d.Claim(t.Context(), a))
		c.foreign(t, a)
		before := c.Revision(t)
		must(t, d.Claim(t.Context(), a))
		if after := c.Revision(t); after != before {
			t.Errorf("claimed again, revision %s to %s", before, after)
		}
		c.drop(t, a)
	})
}

// listed shows that a driver.Lister lists all accounts on record.
func (c contract) listed(t *testing.T) {
	t.Helper()
	d := c.Driver
	if lister, lists := d.(driver.Lister); lists {
		t.Run("accounts on record are listed, also what was claimed only, until they are dropped", func(t *testing.T) {
			listed := func(want bool, accounts ...driver.Account) {
				t.Helper()
				all, err := lister.Accounts(t.Context())
				must(t, err)
				for _, a := range accounts {
					a.Password = ""
					if slices.Contains(all, a) != want {
						t.Errorf("listed %t: %+v", !want, a)
					}
				}
			}
			a, _ := c.provision(t, "listed")
			b, absent := of("uid-b", "listed-b", "user-b"), account("not-there")
			must(t, d.Claim(t.Context(), b))
			listed(true, a, b)
			listed(false, absent)
			c.drop(t, a)
			listed(false, a)
			listed(true, b)
			c.Disown(t, b)
			listed(false, b)
			b.Remembered = true
			_, err := d.Drop(t.Context(), b)
			must(t, err)
		})
	}
}

// unowned shows what becomes of accounts without an owner.
func (c contract) unowned(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("without an owner nothing is done", func(t *testing.T) {
		before := c.Revision(t)
		if _, err := d.Provision(t.Context(), of("", "fine", "fine")); err == nil {
			t.Error("provisioned")
		}
		if err := d.Claim(t.Context(), of("", "fine", "fine")); err == nil {
			t.Error("claimed")
		}
		remembered := of("", "fine", "fine")
		remembered.Remembered = true
		if _, err := d.Drop(t.Context(), remembered); err == nil {
			t.Error("dropped")
		}
		if after := c.Revision(t); after != before {
			t.Errorf("revision %s to %s", before, after)
		}
	})
	t.Run("an account without owner on record is dropped by who remembers it, or has its name, and left by others", func(t *testing.T) {
		a, tenant := c.provision(t, "before")
		must(t, tenant.Write(t.Context(), a.Schema, "key", "kept"))
		c.Disown(t, a)
		before := c.Holds(t, a)
		if removed, err := d.Drop(t.Context(), a); err != nil || len(removed) > 0 || !slices.Equal(before, c.Holds(t, a)) {
			t.Errorf("removed %v: %v", removed, err)
		}
		a.Remembered = true
		if removed := c.drop(t, a); !maps.Equal(removed, c.Removes(1)) {
			t.Errorf("removed %v, want %v", removed, c.Removes(1))
		}
		if removed := c.drop(t, a); len(removed) > 0 {
			t.Errorf("removed %v from nothing", removed)
		}
		a, _ = c.provision(t, "named")
		c.Disown(t, a)
		a.Owner = "named"
		c.drop(t, a)
	})
}

// adopted shows who gets what no record says whose it is.
func (c contract) adopted(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("what no record says whose it is goes to the tenant whose object names it, and to nobody else", func(t *testing.T) {
		a, tenant := c.provision(t, "kamajis")
		must(t, tenant.Write(t.Context(), a.Schema, "key", "kept"))
		c.Disown(t, a)
		c.foreignTo(t, a, of("uid-other", a.Schema, a.User))
		a.Adopts = true
		_, err := d.Provision(t.Context(), a)
		must(t, err)
		if value, err := tenant.Read(t.Context(), a.Schema, "key"); err != nil || value != "kept" {
			t.Errorf("the tenant reads %q: %v", value, err)
		}
		c.drop(t, a)
	})
}

// foreignTo has another tenant ask for what is a's, which must stay as it is.
func (c contract) foreignTo(t *testing.T, a, other driver.Account) {
	t.Helper()
	before, revision := c.Holds(t, a), c.Revision(t)
	var taken *driver.TakenError
	if changed, err := c.Driver.Provision(t.Context(), other); !errors.As(err, &taken) || len(changed) > 0 {
		t.Errorf("%+v is provisioned, changed %q: %v", other, changed, err)
	}
	if err := c.Driver.Claim(t.Context(), other); !errors.As(err, &taken) {
		t.Errorf("%+v is claimed: %v", other, err)
	}
	if after := c.Holds(t, a); !slices.Equal(before, after) || c.Revision(t) != revision {
		t.Errorf("before %q, after %q, revision %s to %s", before, after, revision, c.Revision(t))
	}
}

// foreign has other tenants try to get and to drop what is a's, which must stay as it is.
func (c contract) foreign(t *testing.T, a driver.Account) {
	t.Helper()
	d := c.Driver
	before, revision := c.Holds(t, a), c.Revision(t)
	remembered := of("uid-other", a.Schema, a.User)
	remembered.Remembered = true
	for field, other := range map[string]driver.Account{
		driver.FieldSchema:       of("uid-other", a.Schema, "other"),
		driver.FieldUser:         of("uid-other", "other", a.User),
		driver.FieldSchema + " ": remembered,
	} {
		var taken *driver.TakenError
		if changed, err := d.Provision(t.Context(), other); !errors.As(err, &taken) || len(changed) > 0 || errors.Is(err, driver.ErrAway) {
			t.Errorf("%+v is provisioned, changed %q: %v", other, changed, err)
		} else if taken.Field != strings.TrimSpace(field) || a.Owner != a.Schema && strings.Contains(err.Error(), a.Owner) {
			t.Errorf("%+v: field %s: %v", other, taken.Field, err)
		}
		if err := d.Claim(t.Context(), other); !errors.As(err, &taken) {
			t.Errorf("%+v is claimed: %v", other, err)
		}
		if removed, err := d.Drop(t.Context(), other); err != nil || len(removed) > 0 {
			t.Errorf("the drop of %+v removed %v: %v", other, removed, err)
		}
	}
	if after := c.Holds(t, a); !slices.Equal(before, after) || c.Revision(t) != revision {
		t.Errorf("before %q, after %q, revision %s to %s", before, after, revision, c.Revision(t))
	}
}
