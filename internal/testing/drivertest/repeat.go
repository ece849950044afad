package drivertest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// repeats shows that what is right is left as it is, by Provision, Access and a survey.
func (c contract) repeats(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("provisioning again changes nothing", func(t *testing.T) {
		a, _ := c.provision(t, "again")
		before := c.Revision(t)
		changed, err := d.Provision(t.Context(), a)
		must(t, err)
		if after := c.Revision(t); len(changed) > 0 || after != before {
			t.Errorf("changed %q, revision %s to %s", changed, before, after)
		}
		c.drop(t, a)
	})
	if _, surveys := c.Driver.(driver.Surveyor); !surveys {
		return
	}
	t.Run("a survey finds an account the same until somebody changes it, whatever its tenant and its neighbours do", func(t *testing.T) {
		a, tenant := c.provision(t, "surveyed")
		before := c.survey(t, a)
		must(t, tenant.Write(t.Context(), a.Schema, "key", "value"))
		b, _ := c.provision(t, "neighbour")
		_, err := d.Provision(t.Context(), a)
		must(t, err)
		if after := c.survey(t, a); before == "" || after != before || c.survey(t, b) == before {
			t.Errorf("before %q, after %q", before, after)
		}
		c.drop(t, b)
		c.drop(t, a)
		if after := c.survey(t, a); after != "" {
			t.Errorf("after its drop it is %q", after)
		}
	})
}

// drift shows that Provision puts right what somebody changed, and that a survey notices it.
func (c contract) drift(t *testing.T) {
	t.Helper()
	d := c.Driver
	drifts := maps.Clone(c.Drifts)
	const forgotten = "the owner is forgotten"
	drifts[forgotten] = c.Disown
	for sentence, drift := range drifts {
		t.Run("drift is put right: "+sentence, func(t *testing.T) {
			a, tenant := c.provision(t, "drift")
			must(t, tenant.Write(t.Context(), a.Schema, "key", "kept"))
			want := c.Holds(t, a)
			surveyed := c.survey(t, a)
			drift(t, a)
			if seen := c.survey(t, a) != surveyed; seen == slices.Contains(c.Unseen, sentence) && surveyed != "" {
				t.Errorf("the survey noticed it: %t", seen)
			}
			if got := c.Holds(t, a); slices.Equal(got, want) {
				t.Fatalf("nothing drifted: %q", got)
			}
			a.Remembered = sentence == forgotten // as the service does of what it has made
			changed, err := d.Provision(t.Context(), a)
			must(t, err)
			if got := c.Holds(t, a); !slices.Equal(got, want) || len(changed) == 0 {
				t.Errorf("holds %q, want %q; changed %q", got, want, changed)
			}
			if value, err := tenant.Read(t.Context(), a.Schema, "key"); err != nil || value != "kept" {
				t.Errorf("the tenant reads %q: %v", value, err)
			}
			c.drop(t, a)
		})
	}
}

// certificate shows that a good certificate stays.
func (c contract) certificate(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("a certificate that is good stays equal to the byte", func(t *testing.T) {
		a := account("cert")
		first, err := d.Access(a, driver.Access{}, time.Now())
		must(t, err)
		second, err := d.Access(a, first, time.Now())
		must(t, err)
		if !reflect.DeepEqual(first, second) {
			t.Errorf("differs: until %s, then until %s", first.NotAfter, second.NotAfter)
		}
		other, err := d.Access(of(a.Owner, "cert", "other"), first, time.Now())
		if err != nil || len(first.Cert) > 0 && string(other.Cert) == string(first.Cert) {
			t.Errorf("another user got the same certificate: %v", err)
		}
	})
}

// password shows what another password does to credentials.
func (c contract) password(t *testing.T) {
	t.Helper()
	d := c.Driver
	t.Run("another password lets the tenant in, and its former credentials no more if they depend on it", func(t *testing.T) {
		a := account("rotated")
		_, err := d.Provision(t.Context(), a)
		must(t, err)
		have, err := d.Access(a, driver.Access{}, time.Now())
		must(t, err)
		before := c.Connect(t, a, have)
		must(t, before.Write(t.Context(), a.Schema, "key", "kept"))
		reads := func(tenant Tenant) error {
			value, err := tenant.Read(t.Context(), a.Schema, "key")
			if err == nil && value != "kept" {
				err = fmt.Errorf("it reads %q", value)
			}
			return err
		}
		a.Password = "another"
		changed, err := d.Provision(t.Context(), a)
		must(t, err)
		access, err := d.Access(a, have, time.Now())
		must(t, err)
		after := c.Connect(t, a, access)
		must(t, reads(after))
		if c.Lasting {
			must(t, reads(before))
			if len(changed) > 0 || !reflect.DeepEqual(have, access) {
				t.Errorf("changed %q, access another: %t", changed, !reflect.DeepEqual(have, access))
			}
			c.drop(t, a)
			return
		}
		if len(changed) == 0 {
			t.Error("nothing was changed")
		}
		if c.Outlast != nil {
			must(t, reads(before))
			surveyed := c.survey(t, a)
			c.Outlast(t)
			if _, surveys := d.(driver.Surveyor); surveys && c.survey(t, a) == surveyed {
				t.Error("the survey doesn't notice that their time is up")
			}
			changed, err := d.Provision(t.Context(), a)
			must(t, err)
			if len(changed) == 0 {
				t.Error("nothing was changed when their time was up")
			}
			must(t, reads(after))
		}
		if reads(before) == nil {
			t.Error("the former credentials still get in")
		}
		if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
			t.Errorf("provisioned again, changed %q: %v", changed, err)
		}
		c.drop(t, a)
	})
}
