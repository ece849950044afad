package nats_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	gonats "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
)

func account(name string) driver.Account {
	return driver.Account{Owner: "uid-" + name, Schema: name, User: name, Password: "password"}
}

// join provisions an account and returns what its kine connects with.
func join(t *testing.T, d driver.Driver, a driver.Account) driver.Access {
	t.Helper()
	_, err := d.Provision(t.Context(), a)
	check(t, err)
	access, err := d.Access(a, driver.Access{}, time.Now())
	check(t, err)
	return access
}

// TestAnswersStayInTheAccount shows why tenants have accounts: the server sends what it answers, acknowledges and
// delivers to any subject that is asked for, whatever the rights of who asks.
func TestAnswersStayInTheAccount(t *testing.T) {
	t.Parallel()
	w := world{natsserver.Start(t, natsserver.Options{})}
	d := open(t, w.Config(t))
	a, b := account("a"), account("b")
	thief, victim := tenant{w.Server, a, join(t, d, a)}, tenant{w.Server, b, join(t, d, b)}
	check(t, victim.Write(t.Context(), "b", "key", "kept"))
	check(t, thief.Write(t.Context(), "a", "key", "stolen"))
	before := w.streams(t, "b")
	for _, m := range []*gonats.Msg{
		{Subject: "$KV.a.key", Reply: "$KV.b.key", Data: []byte("x")},
		{Subject: "$JS.API.DIRECT.GET.KV_a.$KV.a.key", Reply: "$KV.b.key"},
		{Subject: "$JS.API.STREAM.INFO.KV_a", Reply: "$KV.b.key"},
		{Subject: "$JS.API.STREAM.MSG.GET.KV_a", Reply: "$KV.b.key", Data: []byte(`{"last_by_subj":"$KV.a.key"}`)},
		{Subject: "$JS.API.CONSUMER.CREATE.KV_a.push", Reply: "$KV.b.key", Data: []byte(`{"stream_name":"KV_a","config":{"name":"push","deliver_subject":"$KV.b.key","ack_policy":"none","inactive_threshold":60000000000}}`)},
		{Subject: "$JS.API.CONSUMER.CREATE.KV_a.pull", Reply: "$KV.b.key", Data: []byte(`{"stream_name":"KV_a","config":{"name":"pull","ack_policy":"none","inactive_threshold":60000000000}}`)},
		{Subject: "$JS.API.CONSUMER.MSG.NEXT.KV_a.pull", Reply: "$KV.b.key", Data: []byte("1")},
	} {
		check(t, thief.send(m))
	}
	// Whatever was sent is done when this is answered.
	_, err := thief.Read(t.Context(), "a", "key")
	check(t, err)
	if after := w.streams(t, "b"); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the neighbour has %q", after)
	}
	if value, err := victim.Read(t.Context(), "b", "key"); err != nil || value != "kept" {
		t.Errorf("the neighbour reads %q: %v", value, err)
	}
}

// send publishes as the tenant.
func (c tenant) send(m *gonats.Msg) error {
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.PublishMsg(m); err != nil {
		return err
	}
	return nc.FlushTimeout(30 * time.Second)
}

func TestDroppedTenants(t *testing.T) {
	t.Parallel()
	w := world{natsserver.Start(t, natsserver.Options{})}
	d := open(t, w.Config(t))
	a := account("reused")
	ghost := tenant{w.Server, a, join(t, d, a)}
	nc, err := ghost.connect()
	check(t, err)
	defer nc.Close()
	_, err = d.Drop(t.Context(), a)
	check(t, err)
	t.Run("are thrown out where they are in", func(t *testing.T) {
		drivertest.Eventually(t, func() error {
			if !nc.IsClosed() {
				return errors.New("it is still in")
			}
			return nil
		})
	})
	t.Run("don't get in again, nor make their bucket again", func(t *testing.T) {
		if _, err := ghost.connect(); !errors.Is(err, gonats.ErrAuthorization) {
			t.Error(err)
		}
	})
	t.Run("have no key to what the next tenant of their names has", func(t *testing.T) {
		next := a
		next.Owner = "uid-next"
		heir := tenant{w.Server, next, join(t, d, next)}
		check(t, heir.Write(t.Context(), "reused", "key", "value"))
		if _, err := ghost.connect(); !errors.Is(err, gonats.ErrAuthorization) {
			t.Error(err)
		}
	})
	t.Run("leave nothing behind, also when their account is gone but not its data", func(t *testing.T) {
		next := a
		next.Owner = "uid-next"
		w.remove(t, "reused")
		removed, err := d.Drop(t.Context(), next)
		if err != nil || !maps.Equal(removed, driver.Removed{"Bucket": 1, driver.RemovedOwner: 2}) {
			t.Errorf("removed %v: %v", removed, err)
		}
		if left := w.records(t); len(left) > 0 {
			t.Errorf("records are %v", left)
		}
		if left := w.streams(t, "reused"); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
	t.Run("are found again under another owner, with their data, when the records say so", func(t *testing.T) {
		restored := a
		before := tenant{w.Server, restored, join(t, d, restored)}
		check(t, before.Write(t.Context(), "reused", "key", "kept"))
		restored.Owner = "uid-restored"
		w.in(t, records, func(js jetstream.JetStream) {
			kv, err := js.KeyValue(t.Context(), "stoker_owners")
			check(t, err)
			for _, key := range []string{"schema.reused", "user.reused"} {
				_, err := kv.PutString(t.Context(), key, "uid-restored")
				check(t, err)
			}
		})
		after := tenant{w.Server, restored, join(t, d, restored)}
		if value, err := after.Read(t.Context(), "reused", "key"); err != nil || value != "kept" {
			t.Errorf("reads %q: %v", value, err)
		}
		if _, err := before.connect(); !errors.Is(err, gonats.ErrAuthorization) {
			t.Errorf("the tenant of before gets in: %v", err)
		}
		_, err := d.Drop(t.Context(), restored)
		check(t, err)
	})
}

func TestRecordsThatAreLostAreMadeAnew(t *testing.T) {
	t.Parallel()
	w := world{natsserver.Start(t, natsserver.Options{})}
	d := open(t, w.Config(t))
	a := account("again")
	in := tenant{w.Server, a, join(t, d, a)}
	check(t, in.Write(t.Context(), "again", "key", "kept"))
	for what, lose := range map[string]func(){
		"bucket": func() {
			w.in(t, records, func(js jetstream.JetStream) { check(t, js.DeleteKeyValue(t.Context(), "stoker_owners")) })
		},
		"account": func() { w.remove(t, records) },
	} {
		lose()
		drivertest.Eventually(t, func() error { _, err := d.Provision(t.Context(), a); return err })
		if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
			t.Errorf("%s: changed %q: %v", what, changed, err)
		}
	}
	if value, err := in.Read(t.Context(), "again", "key"); err != nil || value != "kept" {
		t.Errorf("reads %q: %v", value, err)
	}
}

func TestAccessIsAnotherWhenItMust(t *testing.T) {
	t.Parallel()
	server := natsserver.Start(t, natsserver.Options{})
	c := server.Config(t)
	d := open(t, c)
	a := account("a")
	first, err := d.Access(a, driver.Access{}, time.Now())
	check(t, err)
	with := func(from, to string) driver.Access {
		x := first
		x.Credentials = []byte(strings.ReplaceAll(string(x.Credentials), from, to))
		return x
	}
	other, err := d.Access(account("other"), driver.Access{}, time.Now())
	check(t, err)
	moved := c
	moved.Endpoints = []string{"127.0.0.1:1", server.Endpoint}
	key, err := nkeys.CreateOperator()
	check(t, err)
	rotated := c
	rotated.Password = []byte(server.Creds(t) + natsserver.Seed(t, key))
	again := c
	again.Password = []byte(server.Creds(t) + natsserver.Seed(t, server.Signing))
	token := func(access driver.Access) string {
		return strings.Split(strings.Split(string(access.Credentials), `"user_jwt": "`)[1], `"`)[0]
	}
	for sentence, test := range map[string]struct {
		d    driver.Driver
		a    driver.Account
		have driver.Access
		kept bool // the user
	}{
		"one that is good is kept":                               {d, a, first, true},
		"one keeps its user when the servers move":               {open(t, moved), a, first, true},
		"one keeps its user when the administrator is another":   {open(t, again), a, first, true},
		"one keeps its user when the file was written otherwise": {d, a, with("\n", ""), true},
		"one of another user is made anew":                       {d, driver.Account{Owner: a.Owner, Schema: "a", User: "b", Password: a.Password}, first, false},
		"one of another schema is made anew":                     {d, a, other, false},
		"one of another owner is made anew":                      {d, driver.Account{Owner: "x", Schema: "a", User: "a", Password: a.Password}, first, false},
		"one of another password is made anew":                   {d, driver.Account{Owner: a.Owner, Schema: "a", User: "a", Password: "x"}, first, false},
		"one with another seed is made anew":                     {d, a, with("SU", "SO"), false},
		"one without a token is made anew":                       {d, a, with("user_jwt", "x"), false},
		"one that is no file is made anew":                       {d, a, driver.Access{CA: first.CA, Credentials: []byte("{")}, false},
		"one of another operator's key is made anew":             {open(t, rotated), a, first, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := test.d.Access(test.a, test.have, time.Now())
			check(t, err)
			if kept := token(got) == token(first); kept != test.kept {
				t.Errorf("kept: %t", kept)
			}
			if again, err := test.d.Access(test.a, got, time.Now()); err != nil || !reflect.DeepEqual(got, again) {
				t.Errorf("asked again, it is another: %v", err)
			}
			claims, err := jwt.DecodeUserClaims(token(got))
			check(t, err)
			if claims.Name != test.a.User || claims.Expires != 0 || !claims.HasEmptyPermissions() {
				t.Errorf("it is %s", claims)
			}
		})
	}
}

func TestOperatorsKeyIsReplaced(t *testing.T) {
	t.Parallel()
	next, err := nkeys.CreateOperator()
	check(t, err)
	w := world{natsserver.Start(t, natsserver.Options{Signing: []nkeys.KeyPair{next}})}
	a := account("a")
	old := open(t, w.Config(t))
	before := tenant{w.Server, a, join(t, old, a)}
	check(t, before.Write(t.Context(), "a", "key", "kept"))
	check(t, old.Close())
	c := w.Config(t)
	c.Password = []byte(w.Creds(t) + natsserver.Seed(t, next))
	d := open(t, c)
	after := tenant{w.Server, a, join(t, d, a)}
	for what, in := range map[string]tenant{"the user of before": before, "the new user": after} {
		if value, err := in.Read(t.Context(), "a", "key"); err != nil || value != "kept" {
			t.Errorf("%s reads %q: %v", what, value, err)
		}
	}
	if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
		t.Errorf("changed %q: %v", changed, err)
	}
	pass(t, d, 2*time.Hour)
	if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) != 1 {
		t.Errorf("two hours later, changed %q: %v", changed, err)
	}
	if _, err := before.connect(); !errors.Is(err, gonats.ErrAuthorization) {
		t.Errorf("two hours later, the user of before: %v", err)
	}
	if value, err := after.Read(t.Context(), "a", "key"); err != nil || value != "kept" {
		t.Errorf("two hours later, the new user reads %q: %v", value, err)
	}
}

func TestPasswordIsReplaced(t *testing.T) {
	t.Parallel()
	w := world{natsserver.Start(t, natsserver.Options{})}
	d := open(t, w.Config(t))
	const days = 72 * time.Hour
	var all []tenant
	join := func(password string) *gonats.Conn {
		t.Helper()
		a := account("a")
		a.Password = password
		in := tenant{w.Server, a, join(t, d, a)}
		all = append(all, in)
		nc, err := in.connect()
		check(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	// in says which of the credentials get in, oldest first.
	in := func() (in []bool) {
		t.Helper()
		for _, tenant := range all {
			nc, err := tenant.connect()
			if err == nil {
				nc.Close()
			} else if !errors.Is(err, gonats.ErrAuthorization) {
				t.Error(err)
			}
			in = append(in, err == nil)
		}
		return in
	}
	is := func(want ...bool) {
		t.Helper()
		if got := in(); !slices.Equal(got, want) {
			t.Errorf("they get in: %v, want %v", got, want)
		}
	}
	first := join("first")
	pass(t, d, days)
	join("second")
	t.Run("the former credentials go on, however old the account is, and nobody is thrown out", func(t *testing.T) {
		is(true, true)
		check(t, first.FlushTimeout(30*time.Second))
	})
	pass(t, d, days+30*time.Minute)
	join("third")
	is(true, true, true)
	pass(t, d, days+61*time.Minute)
	_, err := d.Provision(t.Context(), all[2].a)
	check(t, err)
	t.Run("each ends an hour after it was replaced, whatever happened since, open connections too", func(t *testing.T) {
		is(false, true, true)
		drivertest.Eventually(t, func() error {
			if !first.IsClosed() {
				return errors.New("the first one is still connected")
			}
			return nil
		})
	})
	_, err = d.Provision(t.Context(), all[1].a)
	check(t, err)
	pass(t, d, 2*days)
	_, err = d.Provision(t.Context(), all[1].a)
	check(t, err)
	t.Run("a password that comes back is the tenant's again", func(t *testing.T) { is(false, true, false) })
	t.Run("when pods have the new ones, those of before end in a minute, but for any that were good until now", func(t *testing.T) {
		join("fourth")
		rolledOut := all[3].a
		rolledOut.RolledOut = true
		_, err := d.Provision(t.Context(), rolledOut)
		check(t, err)
		if changed, err := d.Provision(t.Context(), rolledOut); err != nil || len(changed) > 0 {
			t.Errorf("changed %q: %v", changed, err)
		}
		is(false, true, false, true)
		rolledOut.Password = "fifth"
		_, err = d.Provision(t.Context(), rolledOut)
		check(t, err)
		pass(t, d, 2*days+time.Minute+time.Second)
		_, err = d.Provision(t.Context(), rolledOut)
		check(t, err)
		is(false, false, false, true)
	})
	_, err = d.Drop(t.Context(), all[3].a)
	check(t, err)
	t.Run("a drop ends former ones at once, too", func(t *testing.T) { is(false, false, false, false) })
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w := world{natsserver.Start(t, natsserver.Options{})}
	d := open(t, w.Config(t))
	began := time.Now()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			err := drivertest.Persist(func() error { _, err := d.Provision(t.Context(), account(fmt.Sprint("many-", i))); return err })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("200 provisioned in %s", time.Since(began).Round(time.Millisecond))
	sizes, err := d.(driver.Sizer).Sizes(t.Context())
	if err != nil || len(sizes) != 200 {
		t.Errorf("%d sizes: %v", len(sizes), err)
	}
}

func TestOneTenantWithoutAnOperator(t *testing.T) {
	t.Parallel()
	server := natsserver.Start(t, natsserver.Options{Users: natsserver.Users})
	c := server.Config(t)
	d := open(t, c)
	nc, err := gonats.Connect("nats://"+server.Endpoint, gonats.UserInfo(natsserver.Admin, natsserver.Password), gonats.Timeout(time.Minute))
	check(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check(t, err)
	names := func() (names []string) {
		t.Helper()
		for name := range js.StreamNames(t.Context()).Name() {
			names = append(names, name)
		}
		return names
	}
	a, b := account("a"), account("b")
	access := join(t, d, a)
	t.Run("it connects as the administrator", func(t *testing.T) {
		if !strings.Contains(string(access.Credentials), `"user": "admin"`) || string(access.CA) != string(c.CA) || len(access.Cert) > 0 {
			t.Errorf("it has %s", access.Credentials)
		}
		if again, err := d.Access(a, access, time.Now()); err != nil || !reflect.DeepEqual(access, again) {
			t.Errorf("asked again, it is another: %v", err)
		}
	})
	t.Run("it has a bucket, which is put right", func(t *testing.T) {
		if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
			t.Errorf("changed %q: %v", changed, err)
		}
		stream, err := js.Stream(t.Context(), "KV_a")
		check(t, err)
		config := stream.CachedInfo().Config
		config.MaxAge = time.Hour
		_, err = js.UpdateStream(t.Context(), config)
		check(t, err)
		if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) != 1 {
			t.Errorf("changed %q: %v", changed, err)
		}
	})
	t.Run("it may only read when that is said, and write again", func(t *testing.T) {
		kv, err := js.KeyValue(t.Context(), "a")
		check(t, err)
		_, err = kv.PutString(t.Context(), "key", "kept")
		check(t, err)
		readOnly := a
		for _, readOnly.ReadOnly = range []bool{true, false} {
			if changed, err := d.Provision(t.Context(), readOnly); err != nil || len(changed) != 1 {
				t.Errorf("changed %q: %v", changed, err)
			}
			if changed, err := d.Provision(t.Context(), readOnly); err != nil || len(changed) > 0 {
				t.Errorf("changed %q again: %v", changed, err)
			}
			for what, write := range map[string]error{
				"an update": func() error { _, err := kv.PutString(t.Context(), "key", "kept"); return err }(), "a deletion": kv.Delete(t.Context(), "other"),
			} {
				if readOnly.ReadOnly != denied(write) || !readOnly.ReadOnly && write != nil {
					t.Errorf("read only %t, %s: %v", readOnly.ReadOnly, what, write)
				}
			}
			if entry, err := kv.Get(t.Context(), "key"); err != nil || string(entry.Value()) != "kept" {
				t.Errorf("it reads %v: %v", entry, err)
			}
		}
		stream, err := js.Stream(t.Context(), "KV_a")
		check(t, err)
		check(t, stream.Purge(t.Context()))
	})
	t.Run("a second one is told what makes room, and changes nothing", func(t *testing.T) {
		before := names()
		var full *driver.ConfigError
		if _, err := d.Provision(t.Context(), b); !errors.As(err, &full) || full.Part != driver.PartBasicAuth || !strings.Contains(err.Error(), "operator") {
			t.Error(err)
		}
		if err := d.Claim(t.Context(), b); !errors.As(err, &full) {
			t.Error(err)
		}
		if removed, err := d.Drop(t.Context(), b); err != nil || len(removed) > 0 {
			t.Errorf("removed %v: %v", removed, err)
		}
		if fmt.Sprint(names()) != fmt.Sprint(before) {
			t.Errorf("there is %q", names())
		}
	})
	t.Run("another doesn't get its names", func(t *testing.T) {
		thief := a
		thief.Owner = "thief"
		var taken *driver.TakenError
		if _, err := d.Provision(t.Context(), thief); !errors.As(err, &taken) {
			t.Error(err)
		}
	})
	t.Run("it has a size", func(t *testing.T) {
		kv, err := js.KeyValue(t.Context(), "a")
		check(t, err)
		_, err = kv.PutString(t.Context(), "key", "value")
		check(t, err)
		sizes, err := d.(driver.Sizer).Sizes(t.Context())
		if err != nil || len(sizes) != 1 || sizes["a"].Keys != 1 || sizes["a"].Bytes == 0 {
			t.Errorf("sizes are %v: %v", sizes, err)
		}
	})
	t.Run("the next one gets the room when it is dropped", func(t *testing.T) {
		removed, err := d.Drop(t.Context(), a)
		if err != nil || !maps.Equal(removed, driver.Removed{"Bucket": 1, driver.RemovedOwner: 2}) {
			t.Errorf("removed %v: %v", removed, err)
		}
		join(t, d, b)
		_, err = d.Drop(t.Context(), b)
		check(t, err)
		if fmt.Sprint(names()) != "[KV_stoker_owners]" {
			t.Errorf("there is %q", names())
		}
	})
	t.Run("a bucket of kine's that nobody has on record goes to who adopts it, another isn't touched", func(t *testing.T) {
		_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "kamaji", Description: "Holds kine key/values", History: 10})
		check(t, err)
		_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "app"})
		check(t, err)
		var taken *driver.TakenError
		if _, err := d.Provision(t.Context(), account("app")); !errors.As(err, &taken) || taken.Message != driver.TakenByOthers {
			t.Error(err)
		}
		kamaji := account("kamaji")
		if _, err := d.Provision(t.Context(), kamaji); !errors.As(err, &taken) || taken.Message != driver.TakenUnrecorded {
			t.Error(err)
		}
		kamaji.Adopts = true
		changed, err := d.Provision(t.Context(), kamaji)
		if err != nil || len(changed) != 1 {
			t.Errorf("changed %q: %v", changed, err)
		}
		_, err = d.Drop(t.Context(), kamaji)
		check(t, err)
		if fmt.Sprint(names()) != "[KV_app KV_stoker_owners]" {
			t.Errorf("there is %q", names())
		}
	})
	t.Run("a crash at any step is recovered from", func(t *testing.T) {
		crash := errors.New("crash")
		for n := range 10 {
			left := n
			nats.SetHeld(d, func(context.Context) error {
				if left--; left < 0 {
					return crash
				}
				return nil
			})
			_, err := d.Provision(t.Context(), a)
			if err == nil {
				_, err = d.Drop(t.Context(), a)
			}
			nats.SetHeld(d, func(context.Context) error { return nil })
			join(t, d, a)
			_, drop := d.Drop(t.Context(), a)
			check(t, drop)
			if err == nil {
				if n != 4 {
					t.Errorf("there were %d changes", n)
				}
				return
			}
			if !errors.Is(err, crash) {
				t.Fatal(err)
			}
		}
	})
}

func TestOneTenantKnownByACertificate(t *testing.T) {
	t.Parallel()
	server := natsserver.Start(t, natsserver.Options{Users: `users: [{user: "CN=admin"}]`, TLS: "verify_and_map: true"})
	c := server.Config(t)
	c.Username, c.Password = nil, nil
	c.ClientCert, c.ClientKey = server.CA.Issue(t, "admin")
	d := open(t, c)
	check(t, d.Check(t.Context()))
	access := join(t, d, account("a"))
	if string(access.Cert) != string(c.ClientCert) || string(access.Key) != string(c.ClientKey) || string(access.CA) != string(c.CA) {
		t.Error("it has another certificate")
	}
	_, err := d.Drop(t.Context(), account("a"))
	check(t, err)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	servers := natsserver.StartCluster(t, natsserver.Options{})
	c := servers[0].Config(t)
	c.Endpoints = nil
	for _, server := range servers {
		c.Endpoints = append(c.Endpoints, server.Endpoint)
	}
	d := open(t, c)
	drivertest.Eventually(t, func() error { return d.Check(t.Context()) })
	if n := d.(driver.Replicated).Replicas(); n != 3 {
		t.Errorf("%d replicas", n)
	}
	t.Run("that was no cluster at first", func(t *testing.T) {
		world{servers[0]}.in(t, records, func(js jetstream.JetStream) {
			stream, err := js.Stream(t.Context(), "KV_stoker_owners")
			check(t, err)
			config := stream.CachedInfo().Config
			config.Replicas = 1
			_, err = js.UpdateStream(t.Context(), config)
			check(t, err)
		})
		later := open(t, c)
		drivertest.Eventually(t, func() error { return later.Check(t.Context()) })
		if n := later.(driver.Replicated).Replicas(); n != 3 {
			t.Errorf("%d replicas", n)
		}
	})
	t.Run("of which not every server has heard of a new account", func(t *testing.T) {
		for i := range 20 { // one in forty is refused at first
			brief := account(fmt.Sprint("brief-", i))
			join(t, d, brief)
			_, err := d.Drop(t.Context(), brief)
			check(t, err)
		}
	})
	a, b := account("a"), account("b")
	access := join(t, d, a)
	join(t, d, b)
	for i := range 10 {
		if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
			t.Errorf("%d: changed %q: %v", i, changed, err)
		}
	}
	sizes, err := d.(driver.Sizer).Sizes(t.Context())
	if err != nil || len(sizes) != 2 {
		t.Errorf("sizes are %v: %v", sizes, err)
	}
	kine := drivertest.RunKine(t, access, func(credentials string) string { return endpoint(d, a, credentials) })
	put := func(key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := kine.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "value")).Commit()
		return err
	}
	drivertest.Eventually(t, func() error { return put("/registry/a") })
	readOnly := a
	readOnly.ReadOnly = true
	began := time.Now()
	_, err = d.Provision(t.Context(), readOnly)
	check(t, err)
	t.Logf("read only after %s", time.Since(began).Round(time.Millisecond))
	if err := put("/registry/late"); err == nil {
		t.Error("kine writes")
	}
	_, err = d.Provision(t.Context(), a)
	check(t, err)
	drivertest.Eventually(t, func() error { return put("/registry/late") })
	for i, server := range servers {
		server.Stop()
		drivertest.Eventually(t, func() error { return put(fmt.Sprint("/registry/", i)) })
		drivertest.Eventually(t, func() error { _, err := d.Provision(t.Context(), a); return err })
		server.Run(t)
		drivertest.Eventually(t, func() error { return d.Check(t.Context()) })
	}
	// A server that has just come back may lose the question, whose answer is waited for as long as a large bucket takes.
	drivertest.Eventually(t, func() error { _, err := d.Drop(t.Context(), a); return err })
	drivertest.Eventually(t, func() error {
		for _, server := range servers {
			if left := (world{server}).streams(t, "a"); len(left) > 0 {
				return fmt.Errorf("left %q", left)
			}
		}
		return nil
	})
	if _, err := (tenant{servers[1], a, access}).connect(); !errors.Is(err, gonats.ErrAuthorization) {
		t.Errorf("the tenant of before: %v", err)
	}
}

func TestOneTenantInAnAccountOfSomebodyElses(t *testing.T) {
	t.Parallel()
	w := world{natsserver.Start(t, natsserver.Options{})}
	key, err := nkeys.CreateAccount()
	check(t, err)
	signing, err := nkeys.CreateAccount()
	check(t, err)
	claims := jwt.NewAccountClaims(natsserver.Public(t, key))
	claims.SigningKeys.Add(natsserver.Public(t, signing))
	claims.Limits.DiskStorage, claims.Limits.Streams, claims.Limits.Consumer = -1, -1, -1
	token, err := claims.Encode(w.Signing)
	check(t, err)
	_, err = w.system(t).Request("$SYS.REQ.CLAIMS.UPDATE", []byte(token), 30*time.Second)
	check(t, err)
	user, err := nkeys.CreateUser()
	check(t, err)
	of := jwt.NewUserClaims(natsserver.Public(t, user))
	of.IssuerAccount = claims.Subject
	token, err = of.Encode(signing)
	check(t, err)
	creds, err := jwt.FormatUserConfig(token, []byte(natsserver.Seed(t, user)))
	check(t, err)
	c := w.Config(t)
	c.Password = creds
	d := open(t, c)
	check(t, d.Check(t.Context()))
	in := tenant{w.Server, account("a"), join(t, d, account("a"))}
	check(t, in.Write(t.Context(), "a", "key", "value"))
	var full *driver.ConfigError
	if _, err := d.Provision(t.Context(), account("b")); !errors.As(err, &full) {
		t.Error(err)
	}
	_, err = d.Drop(t.Context(), account("a"))
	check(t, err)
}
