// Package drivertest is the contract every driver keeps, as tests that run against a real server.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Tenant is a connection with a tenant's own credentials.
type Tenant interface {
	// Write and Read use a key of a schema, be it the tenant's or a neighbour's.
	Write(ctx context.Context, schema, key, value string) error
	Read(ctx context.Context, schema, key string) (string, error)
	// Administer tries what only the administrator may: making a user, reading everything, reading and writing records of
	// owners.
	Administer(ctx context.Context) error
}

// Server is a running database, with a driver connected to it.
type Server struct {
	Driver driver.Driver
	// Connect opens a connection of a tenant.
	Connect func(t *testing.T, a driver.Account, access driver.Access) Tenant
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
	ctx := t.Context()
	d := s.Driver
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	provision := func(t *testing.T, name string) (driver.Account, Tenant) {
		t.Helper()
		a := account(name)
		_, err := d.Provision(ctx, a)
		must(t, err)
		access, err := d.Access(a, driver.Access{}, time.Now())
		must(t, err)
		return a, s.Connect(t, a, access)
	}
	drop := func(t *testing.T, a driver.Account) driver.Removed {
		t.Helper()
		removed, err := d.Drop(ctx, a)
		must(t, err)
		if left := s.Holds(t, a); len(left) > 0 {
			t.Errorf("left after drop: %q", left)
		}
		return removed
	}

	t.Run("a database that answers passes the check", func(t *testing.T) { must(t, d.Check(ctx)) })

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

	// An underscore stands for any character where MySQL grants rights.
	for _, pair := range [][2]string{{"one", "two"}, {"ab", "abc"}, {"ab-", "ab"}, {"ab.", "ab"}, {"ab_", "ab"}, {"ab_", "abc"}, {"a_b", "axb"}, {"A", "a"}} {
		if d.Validate(account(pair[0])) != nil {
			continue // the database has no such names
		}
		t.Run(fmt.Sprintf("tenants %q and %q reach their own data and not each other's", pair[0], pair[1]), func(t *testing.T) {
			a, ta := provision(t, pair[0])
			b, tb := provision(t, pair[1])
			for _, own := range []struct {
				account driver.Account
				tenant  Tenant
				other   driver.Account
			}{{a, ta, b}, {b, tb, a}} {
				must(t, own.tenant.Write(ctx, own.account.Schema, "key", own.account.Schema))
				value, err := own.tenant.Read(ctx, own.account.Schema, "key")
				must(t, err)
				if value != own.account.Schema {
					t.Errorf("%s reads %q", own.account.Schema, value)
				}
				if err := own.tenant.Write(ctx, own.other.Schema, "key", "foreign"); err == nil {
					t.Errorf("%s wrote to %s", own.account.Schema, own.other.Schema)
				}
				if value, err := own.tenant.Read(ctx, own.other.Schema, "key"); err == nil {
					t.Errorf("%s read %q of %s", own.account.Schema, value, own.other.Schema)
				}
				if err := own.tenant.Administer(ctx); err == nil {
					t.Errorf("%s may administer", own.account.Schema)
				}
			}
			drop(t, a)
			if value, err := tb.Read(ctx, b.Schema, "key"); err != nil || value != b.Schema {
				t.Errorf("after the drop of %s, %s reads %q: %v", a.Schema, b.Schema, value, err)
			}
			if err := ta.Write(ctx, a.Schema, "key", "ghost"); err == nil {
				t.Errorf("%s still writes after its drop", a.Schema)
			}
			drop(t, b)
		})
	}

	t.Run("provisioning again changes nothing", func(t *testing.T) {
		a, _ := provision(t, "again")
		before := s.Revision(t)
		changed, err := d.Provision(ctx, a)
		must(t, err)
		if after := s.Revision(t); len(changed) > 0 || after != before {
			t.Errorf("changed %q, revision %s to %s", changed, before, after)
		}
		drop(t, a)
	})

	surveyor, surveys := d.(driver.Surveyor)
	survey := func(t *testing.T, a driver.Account) string {
		t.Helper()
		if !surveys {
			return ""
		}
		all, err := surveyor.Survey(ctx)
		must(t, err)
		one, err := surveyor.Survey(ctx, a.Schema)
		must(t, err)
		if all[a.Schema] != one[a.Schema] || len(one) > 1 {
			t.Errorf("surveyed by itself, it is %v, among all %v", one, all)
		}
		return one[a.Schema]
	}
	if surveys {
		t.Run("a survey finds an account the same until somebody changes it, whatever its tenant and its neighbours do", func(t *testing.T) {
			a, tenant := provision(t, "surveyed")
			before := survey(t, a)
			must(t, tenant.Write(ctx, a.Schema, "key", "value"))
			b, _ := provision(t, "neighbour")
			_, err := d.Provision(ctx, a)
			must(t, err)
			if after := survey(t, a); before == "" || after != before || survey(t, b) == before {
				t.Errorf("before %q, after %q", before, after)
			}
			drop(t, b)
			drop(t, a)
			if after := survey(t, a); after != "" {
				t.Errorf("after its drop it is %q", after)
			}
		})
	}

	drifts := maps.Clone(s.Drifts)
	drifts["the owner is forgotten"] = s.Disown
	for sentence, drift := range drifts {
		t.Run("drift is put right: "+sentence, func(t *testing.T) {
			a, tenant := provision(t, "drift")
			must(t, tenant.Write(ctx, a.Schema, "key", "kept"))
			want := s.Holds(t, a)
			surveyed := survey(t, a)
			drift(t, a)
			if seen := survey(t, a) != surveyed; seen == slices.Contains(s.Unseen, sentence) && surveyed != "" {
				t.Errorf("the survey noticed it: %t", seen)
			}
			if got := s.Holds(t, a); slices.Equal(got, want) {
				t.Fatalf("nothing drifted: %q", got)
			}
			changed, err := d.Provision(ctx, a)
			must(t, err)
			if got := s.Holds(t, a); !slices.Equal(got, want) || len(changed) == 0 {
				t.Errorf("holds %q, want %q; changed %q", got, want, changed)
			}
			if value, err := tenant.Read(ctx, a.Schema, "key"); err != nil || value != "kept" {
				t.Errorf("the tenant reads %q: %v", value, err)
			}
			drop(t, a)
		})
	}

	t.Run("another password lets the tenant in, and its former credentials no more if they depend on it", func(t *testing.T) {
		a := account("rotated")
		_, err := d.Provision(ctx, a)
		must(t, err)
		have, err := d.Access(a, driver.Access{}, time.Now())
		must(t, err)
		before := s.Connect(t, a, have)
		must(t, before.Write(ctx, a.Schema, "key", "kept"))
		reads := func(tenant Tenant) error {
			value, err := tenant.Read(ctx, a.Schema, "key")
			if err == nil && value != "kept" {
				err = fmt.Errorf("it reads %q", value)
			}
			return err
		}
		a.Password = "another"
		changed, err := d.Provision(ctx, a)
		must(t, err)
		access, err := d.Access(a, have, time.Now())
		must(t, err)
		after := s.Connect(t, a, access)
		must(t, reads(after))
		if s.Lasting {
			must(t, reads(before))
			if len(changed) > 0 || !reflect.DeepEqual(have, access) {
				t.Errorf("changed %q, access another: %t", changed, !reflect.DeepEqual(have, access))
			}
			drop(t, a)
			return
		}
		if len(changed) == 0 {
			t.Error("nothing was changed")
		}
		if s.Outlast != nil {
			must(t, reads(before))
			surveyed := survey(t, a)
			s.Outlast(t)
			if surveys && survey(t, a) == surveyed {
				t.Error("the survey doesn't notice that their time is up")
			}
			changed, err := d.Provision(ctx, a)
			must(t, err)
			if len(changed) == 0 {
				t.Error("nothing was changed when their time was up")
			}
			must(t, reads(after))
		}
		if reads(before) == nil {
			t.Error("the former credentials still get in")
		}
		if changed, err := d.Provision(ctx, a); err != nil || len(changed) > 0 {
			t.Errorf("provisioned again, changed %q: %v", changed, err)
		}
		drop(t, a)
	})

	t.Run("drop counts what it removed, and nothing the second time", func(t *testing.T) {
		a, tenant := provision(t, "counted")
		for i := range 3 {
			must(t, tenant.Write(ctx, a.Schema, fmt.Sprint("key", i), "value"))
		}
		if removed := drop(t, a); !maps.Equal(removed, s.Removes(3)) {
			t.Errorf("removed %v, want %v", removed, s.Removes(3))
		}
		if removed := drop(t, a); len(removed) != 0 {
			t.Errorf("removed %v from nothing", removed)
		}
	})

	// foreign has other tenants try to get and to drop what is a's, which must stay as it is.
	foreign := func(t *testing.T, a driver.Account) {
		t.Helper()
		before, revision := s.Holds(t, a), s.Revision(t)
		remembered := of("uid-other", a.Schema, a.User)
		remembered.Remembered = true
		for field, other := range map[string]driver.Account{
			driver.FieldSchema:       of("uid-other", a.Schema, "other"),
			driver.FieldUser:         of("uid-other", "other", a.User),
			driver.FieldSchema + " ": remembered,
		} {
			var taken *driver.TakenError
			if changed, err := d.Provision(ctx, other); !errors.As(err, &taken) || len(changed) > 0 || errors.Is(err, driver.ErrAway) {
				t.Errorf("%+v is provisioned, changed %q: %v", other, changed, err)
			} else if taken.Field != strings.TrimSpace(field) || a.Owner != a.Schema && strings.Contains(err.Error(), a.Owner) {
				t.Errorf("%+v: field %s: %v", other, taken.Field, err)
			}
			if err := d.Claim(ctx, other); !errors.As(err, &taken) {
				t.Errorf("%+v is claimed: %v", other, err)
			}
			if removed, err := d.Drop(ctx, other); err != nil || len(removed) > 0 {
				t.Errorf("the drop of %+v removed %v: %v", other, removed, err)
			}
		}
		if after := s.Holds(t, a); !slices.Equal(before, after) || s.Revision(t) != revision {
			t.Errorf("before %q, after %q, revision %s to %s", before, after, revision, s.Revision(t))
		}
	}

	t.Run("what is one tenant's, another can neither get nor drop, until it is dropped", func(t *testing.T) {
		a, tenant := provision(t, "owned")
		must(t, tenant.Write(ctx, a.Schema, "key", "kept"))
		foreign(t, a)
		if value, err := tenant.Read(ctx, a.Schema, "key"); err != nil || value != "kept" {
			t.Errorf("the tenant reads %q: %v", value, err)
		}
		drop(t, a)
		a.Owner = "uid-next"
		_, err := d.Provision(ctx, a)
		must(t, err)
		drop(t, a)
	})

	t.Run("a name that is another tenant's UID is that tenant's, or nobody's but the first one's", func(t *testing.T) {
		a := of("uid-a", "uid-a", "uid-a")
		_, err := d.Provision(ctx, a)
		must(t, err)
		foreign(t, a)
		drop(t, a)
		thief := of("uid-thief", "uid-a", "thief")
		_, err = d.Provision(ctx, thief)
		must(t, err)
		var taken *driver.TakenError
		if _, err := d.Provision(ctx, a); !errors.As(err, &taken) {
			t.Error(err)
		}
		drop(t, thief)
	})

	t.Run("of many who ask for the same at once, one gets it", func(t *testing.T) {
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = d.Provision(ctx, of(fmt.Sprint("uid-", i), "wanted", fmt.Sprint("wants", i%4)))
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
			removed, err := d.Drop(ctx, of(fmt.Sprint("uid-", i), "wanted", fmt.Sprint("wants", i%4)))
			if err != nil || (len(removed) > 0) != (i == got[0]) {
				t.Errorf("%d, when %v got it: removed %v, %v", i, got, removed, err)
			}
		}
	})

	t.Run("what is claimed is kept from others, and dropped as one that was made", func(t *testing.T) {
		a := account("claimed")
		must(t, d.Claim(ctx, a))
		foreign(t, a)
		before := s.Revision(t)
		must(t, d.Claim(ctx, a))
		if after := s.Revision(t); after != before {
			t.Errorf("claimed again, revision %s to %s", before, after)
		}
		drop(t, a)
	})

	if lister, lists := d.(driver.Lister); lists {
		t.Run("accounts on record are listed, also what was claimed only, until they are dropped", func(t *testing.T) {
			listed := func(want bool, accounts ...driver.Account) {
				t.Helper()
				all, err := lister.Accounts(ctx)
				must(t, err)
				for _, a := range accounts {
					a.Password = ""
					if slices.Contains(all, a) != want {
						t.Errorf("listed %t: %+v", !want, a)
					}
				}
			}
			a, _ := provision(t, "listed")
			b, c := of("uid-b", "listed-b", "user-b"), account("not-there")
			must(t, d.Claim(ctx, b))
			listed(true, a, b)
			listed(false, c)
			drop(t, a)
			listed(false, a)
			listed(true, b)
			s.Disown(t, b)
			listed(false, b)
			b.Remembered = true
			_, err := d.Drop(ctx, b)
			must(t, err)
		})
	}

	t.Run("without an owner nothing is done", func(t *testing.T) {
		before := s.Revision(t)
		if _, err := d.Provision(ctx, of("", "fine", "fine")); err == nil {
			t.Error("provisioned")
		}
		if err := d.Claim(ctx, of("", "fine", "fine")); err == nil {
			t.Error("claimed")
		}
		remembered := of("", "fine", "fine")
		remembered.Remembered = true
		if _, err := d.Drop(ctx, remembered); err == nil {
			t.Error("dropped")
		}
		if after := s.Revision(t); after != before {
			t.Errorf("revision %s to %s", before, after)
		}
	})

	t.Run("an account without owner on record is dropped by who remembers it, or has its name, and left by others", func(t *testing.T) {
		a, tenant := provision(t, "before")
		must(t, tenant.Write(ctx, a.Schema, "key", "kept"))
		s.Disown(t, a)
		before := s.Holds(t, a)
		if removed, err := d.Drop(ctx, a); err != nil || len(removed) > 0 || !slices.Equal(before, s.Holds(t, a)) {
			t.Errorf("removed %v: %v", removed, err)
		}
		a.Remembered = true
		if removed := drop(t, a); !maps.Equal(removed, s.Removes(1)) {
			t.Errorf("removed %v, want %v", removed, s.Removes(1))
		}
		if removed := drop(t, a); len(removed) > 0 {
			t.Errorf("removed %v from nothing", removed)
		}
		a, _ = provision(t, "named")
		s.Disown(t, a)
		a.Owner = "named"
		drop(t, a)
	})

	for what, act := range map[string]func(driver.Account) error{
		"provision": func(a driver.Account) error { _, err := d.Provision(ctx, a); return err },
		"drop":      func(a driver.Account) error { _, err := d.Drop(ctx, a); return err },
	} {
		t.Run("a crash at any step of "+what+" is recovered from, and lets nobody else in", func(t *testing.T) {
			defer s.CrashAfter(-1)
			n := 0
			for crashed := true; crashed; n++ {
				for _, then := range []string{"provision", "drop"} {
					a := account("crash")
					if what == "drop" {
						_, tenant := provision(t, "crash")
						must(t, tenant.Write(ctx, a.Schema, "key", "value"))
					}
					s.CrashAfter(n)
					crashed = act(a) != nil
					s.CrashAfter(-1)
					if len(s.Holds(t, a)) > 0 {
						foreign(t, a)
					}
					if then == "provision" {
						_, tenant := provision(t, "crash")
						must(t, tenant.Write(ctx, a.Schema, "key", "value"))
						if changed, err := d.Provision(ctx, a); err != nil || len(changed) > 0 {
							t.Errorf("after %d changes, then all: changed %q: %v", n, changed, err)
						}
					}
					drop(t, a)
				}
			}
			t.Logf("%d changes", n-1)
			if n < 4 {
				t.Errorf("no more than %d changes", n-1)
			}
		})
	}

	t.Run("a certificate that is good stays equal to the byte", func(t *testing.T) {
		a := account("cert")
		first, err := d.Access(a, driver.Access{}, time.Now())
		must(t, err)
		second, err := d.Access(a, first, time.Now())
		must(t, err)
		if !reflect.DeepEqual(first, second) {
			t.Errorf("differs: until %s, then until %s", first.NotAfter, second.NotAfter)
		}
		if other, err := d.Access(of(a.Owner, "cert", "other"), first, time.Now()); err != nil || len(first.Cert) > 0 && string(other.Cert) == string(first.Cert) {
			t.Errorf("another user got the same certificate: %v", err)
		}
	})

	t.Run("names that reach beyond a tenant's own are refused and touch nothing", func(t *testing.T) {
		before := s.Revision(t)
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
			_, provision := d.Provision(ctx, a)
			_, drop := d.Drop(ctx, a)
			if !errors.As(provision, &bad) || !errors.As(drop, &bad) || !errors.As(d.Validate(a), &bad) || !errors.As(d.Claim(ctx, a), &bad) {
				t.Errorf("%+v: provision %v, drop %v", a, provision, drop)
			} else if bad.Field != field {
				t.Errorf("%+v: names field %s", a, bad.Field)
			}
		}
		for _, n := range slices.Concat(names, s.ReservedSchemas) {
			refused(of("uid", n, "fine"), driver.FieldSchema)
		}
		for _, n := range slices.Concat(names, s.ReservedUsers) {
			refused(of("uid", "fine", n), driver.FieldUser)
		}
		if after := s.Revision(t); after != before {
			t.Errorf("revision %s to %s", before, after)
		}
	})

	if sizer, ok := d.(driver.Sizer); ok {
		t.Run("the sizes of all tenants are told, and of nobody else", func(t *testing.T) {
			a, ta := provision(t, "much")
			b, tb := provision(t, "little")
			for i := range 200 {
				must(t, ta.Write(ctx, a.Schema, fmt.Sprint("key", i), strings.Repeat("v", 1000)))
			}
			for i := range 20 {
				must(t, tb.Write(ctx, b.Schema, fmt.Sprint("key", i), "value"))
			}
			Eventually(t, time.Minute, func() error {
				sizes, err := sizer.Sizes(ctx)
				if err != nil {
					return err
				}
				much, little := sizes[a.Schema], sizes[b.Schema]
				if len(sizes) != 2 || much.Keys < 180 || much.Keys > 220 || little.Keys < 10 || little.Keys > 30 || much.Bytes < 200_000 || little.Bytes <= 0 || little.Bytes >= much.Bytes {
					return fmt.Errorf("sizes are %v", sizes)
				}
				return nil
			})
			drop(t, a)
			drop(t, b)
			if sizes, err := sizer.Sizes(ctx); err != nil || len(sizes) > 0 {
				t.Errorf("after the drop: %v, %v", sizes, err)
			}
		})
	}

	for _, n := range []int{1, 50} {
		t.Run(fmt.Sprintf("measured: %d provisioned and dropped at once", n), func(t *testing.T) {
			measure := func(what string, step func(a driver.Account) error) {
				took := make([]time.Duration, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						began := time.Now()
						if err := step(account(fmt.Sprint("many", i))); err != nil {
							t.Errorf("%s %d: %v", what, i, err)
						}
						took[i] = time.Since(began)
					})
				}
				wg.Wait()
				slices.Sort(took)
				t.Logf("%s: median %s, max %s", what, took[n/2].Round(100*time.Microsecond), took[n-1].Round(100*time.Microsecond))
			}
			measure("provision", func(a driver.Account) error { _, err := d.Provision(ctx, a); return err })
			measure("provision again", func(a driver.Account) error { _, err := d.Provision(ctx, a); return err })
			measure("drop", func(a driver.Account) error { _, err := d.Drop(ctx, a); return err })
		})
	}

	t.Run("a database that is away is noticed soon, and used again when it is back", func(t *testing.T) {
		a, _ := provision(t, "outage")
		s.Stop(t)
		for what, step := range map[string]func() error{
			"check":     func() error { return d.Check(ctx) },
			"provision": func() error { _, err := d.Provision(ctx, a); return err },
			"drop":      func() error { _, err := d.Drop(ctx, a); return err },
		} {
			began := time.Now()
			if err := step(); !errors.Is(err, driver.ErrAway) {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("%s took %s", what, took)
			}
		}
		s.Start(t)
		Eventually(t, 15*time.Second, func() error { return d.Check(ctx) })
		_, err := d.Provision(ctx, a)
		must(t, err)
		drop(t, a)
	})
}

// Eventually calls step until it succeeds.
func Eventually(t testing.TB, within time.Duration, step func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := step()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
