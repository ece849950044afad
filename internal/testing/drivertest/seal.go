package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// seal shows that a tenant that may only read writes nothing any more, and writes again when it may.
func (c contract) seal(t *testing.T) {
	t.Helper()
	t.Run("one that may only read reads on, writes nothing, and writes again when it may", c.sealed)
	t.Run("one that may only read from the beginning writes nothing", c.sealedAtFirst)
	t.Run("of writes under way when it may only read, those that were acknowledged are there, and no others come", c.sealedAtWork)
	t.Run("a crash at any step of making it read only, or write again, is recovered from", c.sealCrashes)
}

// stay opens a connection that the tenant keeps.
func (c contract) stay(t *testing.T, a driver.Account) Tenant {
	t.Helper()
	access, err := c.Driver.Access(a, driver.Access{}, time.Now())
	must(t, err)
	if c.Stay == nil {
		return c.Connect(t, a, access)
	}
	return c.Stay(t, a, access)
}

// set provisions an account so that it may only read, or write, and looks that to do so again changes nothing.
func (c contract) set(t *testing.T, a driver.Account, readOnly bool) {
	t.Helper()
	a.ReadOnly = readOnly
	began := time.Now()
	changed, err := c.Driver.Provision(t.Context(), a)
	must(t, err)
	t.Logf("read only %t after %s", readOnly, time.Since(began).Round(100*time.Microsecond))
	if len(changed) == 0 {
		t.Errorf("read only %t: nothing was changed", readOnly)
	}
	before, surveyed := c.Revision(t), c.survey(t, a)
	changed, err = c.Driver.Provision(t.Context(), a)
	must(t, err)
	if after := c.Revision(t); len(changed) > 0 || after != before {
		t.Errorf("read only %t: changed %q again, revision %s to %s", readOnly, changed, before, after)
	}
	if again := c.survey(t, a); again != surveyed {
		t.Errorf("read only %t: surveyed %q, then %q", readOnly, surveyed, again)
	}
}

func (c contract) sealed(t *testing.T) {
	a, tenant := c.provision(t, "sealed")
	neighbour, next := c.provision(t, "sealed-not")
	stays := c.stay(t, a)
	must(t, stays.Write(t.Context(), a.Schema, "key", "kept"))
	surveyed := c.survey(t, a)
	for _, round := range []string{"first", "second"} {
		c.set(t, a, true)
		c.denied(t, "a write by a connection that was open", stays.Write(t.Context(), a.Schema, "key", "late"))
		c.denied(t, "a write by a new connection", tenant.Write(t.Context(), a.Schema, "key", "late"))
		c.denied(t, "a write of a new key", tenant.Write(t.Context(), a.Schema, "late", "late"))
		must(t, next.Write(t.Context(), neighbour.Schema, "key", round))
		for what, reader := range map[string]Tenant{"a connection that was open": stays, "a new connection": tenant} {
			if value, err := reader.Read(t.Context(), a.Schema, "key"); err != nil || value != "kept" {
				t.Errorf("%s reads %q: %v", what, value, err)
			}
		}
		c.set(t, a, false)
		if after := c.survey(t, a); after != surveyed {
			t.Errorf("surveyed %q before and %q after", surveyed, after)
		}
		must(t, stays.Write(t.Context(), a.Schema, "open", round))
		must(t, tenant.Write(t.Context(), a.Schema, "new", round))
		for _, key := range []string{"open", "new"} {
			if value, err := tenant.Read(t.Context(), a.Schema, key); err != nil || value != round {
				t.Errorf("%s is %q: %v", key, value, err)
			}
		}
	}
	c.set(t, a, true)
	c.drop(t, a)
	c.drop(t, neighbour)
}

func (c contract) sealedAtFirst(t *testing.T) {
	a := account("sealed-first")
	c.set(t, a, true)
	access, err := c.Driver.Access(a, driver.Access{}, time.Now())
	must(t, err)
	tenant := c.Connect(t, a, access)
	c.denied(t, "a write", tenant.Write(t.Context(), a.Schema, "key", "late"))
	c.denied(t, "a write of what it has made itself", tenant.Write(t.Context(), a.Schema, "key", "late"))
	c.set(t, a, false)
	must(t, tenant.Write(t.Context(), a.Schema, "key", "value"))
	c.drop(t, a)
}

// writer writes keys one after the other and notes what came of them.
type writer struct {
	tenant       Tenant
	name         string
	acknowledged []string
	// late are those that it began to write after the seal. Those that it was writing meanwhile may be there or not.
	late []string
}

// write writes until the tenant has been sealed, and so many keys more. enough is told when it has written some.
func (w *writer) write(ctx context.Context, t *testing.T, schema string, sealed *atomic.Bool, enough func()) {
	const some, more = 10, 10
	for n := 0; len(w.late) < more && n < 100_000; n++ {
		key, late := fmt.Sprint(w.name, "-", n), sealed.Load()
		err := w.tenant.Write(ctx, schema, key, "value")
		if late {
			w.late = append(w.late, key)
			if err == nil {
				t.Errorf("%s is written after the seal", key)
			}
		} else if err == nil {
			w.acknowledged = append(w.acknowledged, key)
			if len(w.acknowledged) == some {
				enough()
			}
		}
	}
}

func (c contract) sealedAtWork(t *testing.T) {
	a, tenant := c.provision(t, "sealed-busy")
	must(t, tenant.Write(t.Context(), a.Schema, "first", "value"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	writers := make([]*writer, 8)
	var sealed atomic.Bool
	var all, ready sync.WaitGroup
	ready.Add(len(writers))
	for i := range writers {
		w := &writer{tenant: tenant, name: fmt.Sprint("writer-", i)}
		if i%4 != 0 { // most of them as kine does
			w.tenant = c.stay(t, a)
		}
		writers[i] = w
		all.Go(func() { w.write(ctx, t, a.Schema, &sealed, ready.Done) })
	}
	ready.Wait()
	readOnly := a
	readOnly.ReadOnly = true
	began := time.Now()
	err := Persist(func() error { _, err := c.Driver.Provision(ctx, readOnly); return err })
	took := time.Since(began)
	sealed.Store(true)
	must(t, err)
	reader := c.stay(t, a)
	there := func(key string) bool { _, err := reader.Read(t.Context(), a.Schema, key); return err == nil }
	all.Wait()
	t.Logf("read only after %s", took.Round(100*time.Microsecond))
	acknowledged := 0
	for _, w := range writers {
		acknowledged += len(w.acknowledged)
		for _, key := range w.acknowledged {
			if !there(key) {
				t.Errorf("%s was acknowledged and isn't there", key)
			}
		}
		if key := slices.IndexFunc(w.late, there); key >= 0 || len(w.late) == 0 {
			t.Errorf("%s is there, of %q that were written after the seal", w.name, w.late)
		}
	}
	t.Logf("%d writes were acknowledged before", acknowledged)
	c.drop(t, a)
}

func (c contract) sealCrashes(t *testing.T) {
	defer c.CrashAfter(-1)
	for _, readOnly := range []bool{true, false} {
		n := 0
		for crashed := true; crashed; n++ {
			a, tenant := c.provision(t, "seal-crash")
			a.ReadOnly = !readOnly
			must(t, tenant.Write(t.Context(), a.Schema, "key", "kept"))
			stays := c.stay(t, a)
			must(t, stays.Write(t.Context(), a.Schema, "key", "kept"))
			_, err := c.Driver.Provision(t.Context(), a)
			must(t, err)
			_, _ = stays.Read(t.Context(), a.Schema, "key") // opens a connection that has the rights of before
			a.ReadOnly = readOnly
			c.CrashAfter(n)
			_, err = c.Driver.Provision(t.Context(), a)
			crashed = err != nil
			c.CrashAfter(-1)
			_, err = c.Driver.Provision(t.Context(), a)
			must(t, err)
			if err := stays.Write(t.Context(), a.Schema, "key", "late"); readOnly {
				c.denied(t, fmt.Sprint("a write after ", n, " changes"), err)
			} else if err != nil {
				t.Errorf("a write after %d changes: %v", n, err)
			}
			if changed, err := c.Driver.Provision(t.Context(), a); err != nil || len(changed) > 0 {
				t.Errorf("after %d changes, then all: changed %q: %v", n, changed, err)
			}
			c.drop(t, a)
		}
		t.Logf("read only %t: %d changes", readOnly, n-1)
	}
}

// kineSeal shows that a kine at work refuses writes, and reads on, while its tenant may only read, and writes again afterwards; and, but
// of NATS, that one that starts meanwhile reads. key is there.
func kineSeal(t *testing.T, d driver.Driver, a driver.Account, kine *RunningKine, key string) {
	t.Helper()
	put := func(key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done, err := kine.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "value")).Commit()
		if err == nil && !done.Succeeded {
			err = errors.New("it is there already")
		}
		return err
	}
	reads := func(key string, want int64) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := kine.Client.Get(ctx, key)
		if err == nil && got.Count != want {
			t.Errorf("there are %d of %s", got.Count, key)
		}
		return err
	}
	refused := func() {
		for i := range 5 {
			if put(fmt.Sprint("/registry/late/", i)) == nil {
				t.Error("kine writes")
			}
		}
		Eventually(t, func() error { return reads(key, 1) }) // when it has connections again
	}
	readOnly := a
	readOnly.ReadOnly = true
	_, err := d.Provision(t.Context(), readOnly)
	must(t, err)
	refused()
	if _, nats := d.(driver.Replicated); !nats {
		kine.End(syscall.SIGTERM)
		kine.Start(t)
		refused()
	}
	_, err = d.Provision(t.Context(), a)
	must(t, err)
	Eventually(t, func() error { return put("/registry/after-the-seal") })
	for i := range 5 {
		must(t, reads(fmt.Sprint("/registry/late/", i), 0))
	}
}
