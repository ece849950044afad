package datastore_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// credentials are what the tenant's Secret says now.
func (x *tenant) credentials() (data map[string][]byte, version string) {
	x.installation.t.Helper()
	s, err := x.secret(name.DatastoreConfig(x.key.Name))
	x.must(err)
	return s.Data, s.ResourceVersion
}

// enters logs in with what the Secret says.
func (d database) enters(ctx context.Context, x *tenant) error {
	s, err := x.secret(name.DatastoreConfig(x.key.Name))
	if err != nil {
		return err
	}
	return d.enter(ctx, string(s.Data[name.KeyDBUser]), string(s.Data[name.KeyDBPassword]), string(s.Data[name.KeyDBSchema]))
}

func TestServiceOnSQL(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			install(t).sql(kind, databases[kind](t))
		})
	}
}

// sql runs tenants on one server.
func (in *installation) sql(kind string, d database) {
	t := in.t
	in.quiet()
	stop := in.run()
	defer func() { stop() }()
	ctx := t.Context()
	in.object(kind, d)
	admin, err := store.Drivers()[d.kind].Open(d.config)
	in.must(err)
	t.Cleanup(func() { _ = admin.Close() })
	tenantOf := func(n string) *tenant {
		x := in.tenant(kind + "-" + n)
		x.t.Spec.DataStore = kind
		return x
	}
	provisioned, removed := event.DatastoreProvisioned{}, event.Removals{}
	demo := tenantOf("demo")

	t.Run("a tenant gets what kine needs, and gets in with it", func(t *testing.T) {
		began := time.Now()
		demo.accept()
		demo.await(event.Provisioned, &provisioned)
		t.Logf("accepted to provisioned: %s", time.Since(began).Round(time.Millisecond))
		a := demo.account()
		data, _ := demo.credentials()
		if string(data["DB_CONNECTION_STRING"]) != d.config.Endpoints[0] || string(data["DB_SCHEMA"]) != a.Schema || string(data["DB_USER"]) != a.User ||
			!regexp.MustCompile(`^[A-Za-z0-9]{22,}$`).Match(data["DB_PASSWORD"]) || len(data) != 4 {
			t.Errorf("the Secret holds %q", data)
		}
		cert, err := demo.secret(name.DatastoreCertificate(demo.key.Name))
		in.must(err)
		if len(cert.Data) != 1 || !bytes.Equal(cert.Data["ca.crt"], d.config.CA) {
			t.Errorf("the Secret of the certificate holds %q", cert.Data)
		}
		in.must(d.enters(ctx, demo))
	})
	t.Run("what the tenant holds is measured", func(t *testing.T) {
		measured := event.DatastoreMeasured{}
		if demo.await(event.Measured, &measured); measured.MeasuredAt.IsZero() { // MySQL's databases are nothing while they are empty
			t.Errorf("%+v", measured)
		}
	})
	t.Run("the same event again, and a restart, change nothing", func(t *testing.T) {
		before, _ := demo.state()
		_, version := demo.credentials()
		stop()
		stop = in.run()
		demo.accept()
		second := tenantOf("second")
		second.accept()
		second.await(event.Provisioned, &provisioned)
		after, _ := demo.state()
		if _, now := demo.credentials(); now != version || !bytes.Equal(event.Marshal(before), event.Marshal(after)) {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
		in.must(d.enters(ctx, second))
		if err := d.enter(ctx, second.account().User, "not-the-password", second.account().Schema); errorCode(err) != d.wrongPassword {
			t.Errorf("any password will do: %v", err)
		}
		data, _ := second.credentials()
		if err := d.enter(ctx, second.account().User, string(data["DB_PASSWORD"]), demo.account().Schema); errorCode(err) != d.notTheirs {
			t.Errorf("a tenant gets into another's database: %v", err)
		}
	})
	t.Run("a password somebody wrote into the Secret is replaced by a new one, which is told", func(t *testing.T) {
		in.quiet()
		before, _ := demo.credentials()
		began := time.Now()
		in.must(in.kube.MergePatch(ctx, kube.Secrets, in.namespace, name.DatastoreConfig(demo.key.Name), map[string]any{"data": map[string]any{"DB_PASSWORD": []byte("known")}}, nil))
		demo.await(event.Provisioned, &provisioned)
		t.Logf("edited, put right in %s", time.Since(began).Round(time.Millisecond))
		after, _ := demo.credentials()
		if p := string(after["DB_PASSWORD"]); p == "known" || p == string(before["DB_PASSWORD"]) {
			t.Errorf("the password is %q", p)
		}
		in.must(d.enters(ctx, demo))
		if err := d.enter(ctx, demo.account().User, string(before["DB_PASSWORD"]), demo.account().Schema); errorCode(err) != d.wrongPassword {
			t.Errorf("the password of before is good still: %v", err)
		}
	})
	t.Run("a turn that fails and is tried again makes one new password", func(t *testing.T) {
		x := tenantOf("once")
		x.accept()
		x.await(event.Provisioned, &provisioned)
		before, _ := x.credentials()
		in.quiet()
		cert, config := name.DatastoreCertificate(x.key.Name), name.DatastoreConfig(x.key.Name)
		in.must(in.kube.MergePatch(ctx, kube.Secrets, in.namespace, cert, map[string]any{"data": nil, "immutable": true}, nil))
		failed := event.StepFailed{}
		if x.await(event.Failed, &failed); !strings.Contains(failed.Message, "immutable") {
			t.Errorf("failed for another reason: %+v", failed)
		}
		_, err := in.kube.Delete(ctx, kube.Secrets, in.namespace, config, metav1.DeleteOptions{})
		in.must(err)
		var first map[string][]byte
		drivertest.Eventually(t, func() error {
			s, err := x.secret(config)
			if err == nil {
				first = s.Data
			}
			return err
		})
		_, err = in.kube.Delete(ctx, kube.Secrets, in.namespace, cert, metav1.DeleteOptions{})
		in.must(err)
		x.await(event.Provisioned, &provisioned)
		last, _ := x.credentials()
		if a, b, c := string(before["DB_PASSWORD"]), string(first["DB_PASSWORD"]), string(last["DB_PASSWORD"]); a == b || b != c {
			t.Errorf("%q, then %q, then %q", a, b, c)
		}
		in.must(d.enters(ctx, x))
	})
	t.Run("what somebody changed in the database is put right within the minute, and costs the Secrets nothing", func(t *testing.T) {
		drifted := map[string]*tenant{}
		for what := range d.drifts(driver.Account{}) {
			x := tenantOf(fmt.Sprint("drift-", len(drifted)))
			x.accept()
			x.await(event.Provisioned, &provisioned)
			drifted[what] = x
		}
		versions := map[string]string{}
		began := time.Now()
		for what, x := range drifted {
			_, versions[what] = x.credentials()
			d.do(t, d.drifts(x.account())[what])
		}
		for what, x := range drifted {
			a := x.account()
			data, _ := x.credentials()
			a.Password = string(data["DB_PASSWORD"])
			drivertest.Eventually(t, func() error { return d.enters(ctx, x) })
			if _, now := x.credentials(); now != versions[what] {
				t.Errorf("%s: the Secret was written", what)
			}
			if changed, err := reprovision(ctx, admin, a); err != nil || len(changed) > 0 {
				t.Errorf("%s: after %s there was %q to do: %v", what, time.Since(began), changed, err)
			}
		}
		t.Logf("put right in %s", time.Since(began).Round(100*time.Millisecond))
	})
	t.Run("names that the spec says are taken, and one that the database can't have is refused", func(t *testing.T) {
		named, bad := tenantOf("named"), tenantOf("bad")
		named.t.Spec.DataStoreSchema, named.t.Spec.DataStoreUsername = "of_their_own", "of-their-own"
		named.accept()
		named.await(event.Provisioned, &provisioned)
		in.must(d.enters(ctx, named))
		if provisioned.Schema != "of_their_own" || provisioned.User != name.DataStoreUserLike("of-their-own", in.namespace, named.key.Name, named.spec.UID) {
			t.Errorf("%+v", provisioned)
		}
		bad.t.Spec.DataStoreSchema = strings.Repeat("s", 65)
		bad.accept()
		failed := event.StepFailed{}
		bad.await(event.Failed, &failed)
		if failed.Reason != "InvalidName" || !strings.Contains(failed.Message, "spec.dataStoreSchema") {
			t.Errorf("%+v", failed)
		}
		thief := tenantOf("thief")
		thief.t.Spec.DataStoreSchema = "of_their_own"
		thief.accept()
		thief.await(event.Failed, &failed)
		if failed.Reason != "SchemaTaken" {
			t.Errorf("%+v", failed)
		}
		if _, err := thief.secret(name.DatastoreConfig(thief.key.Name)); !apierrors.IsNotFound(err) {
			t.Errorf("its credentials: %v", err)
		}
	})
	t.Run("a tenant made anew under the same name inherits nothing that was left, and isn't kept from it", func(t *testing.T) {
		first := tenantOf("again")
		first.accept()
		first.await(event.Provisioned, &provisioned)
		in.must(in.bus[name.ServiceIntake].Forget(ctx, first.key))
		for _, secret := range []string{name.DatastoreConfig(first.key.Name), name.DatastoreCertificate(first.key.Name)} {
			_, err := in.kube.Delete(ctx, kube.Secrets, in.namespace, secret, metav1.DeleteOptions{})
			in.must(err)
		}
		before := provisioned
		next := tenantOf("again")
		next.spec.UID, next.ids = "uid-of-the-next", 10 // ids of events it hasn't told before
		next.accept()
		next.await(event.Provisioned, &provisioned)
		if provisioned.Schema == before.Schema || provisioned.User == before.User || provisioned.Schema != next.account().Schema {
			t.Errorf("before %+v, now %+v", before, provisioned)
		}
		in.must(d.enters(ctx, next))
	})
	t.Run("while the server is away tenants wait, and go on when it is back", func(t *testing.T) {
		d.kill(t)
		waits := tenantOf("waits")
		waits.accept()
		drivertest.Eventually(t, func() error {
			if s, _ := waits.state(); s.Failure == nil && !s.Wait.Waits() {
				return fmt.Errorf("it is %+v", s)
			}
			return nil
		})
		began := time.Now()
		d.run(t)
		waits.await(event.Provisioned, &provisioned)
		t.Logf("provisioned %s after it came back", time.Since(began).Round(100*time.Millisecond))
		in.must(d.enters(ctx, waits))
	})
	t.Run("deletion leaves nothing", func(t *testing.T) {
		began := time.Now()
		demo.remove()
		demo.await(event.Removed, &removed)
		t.Logf("removed in %s: %v", time.Since(began).Round(time.Millisecond), removed.Removed)
		want := map[string]int{"workload/Deployment": 1, "datastore/Database": 1, "datastore/User": 1, "datastore/Owner": 2, "datastore/Secret": 2}
		if fmt.Sprint(removed.Removed) != fmt.Sprint(want) || len(removed.Left) > 0 {
			t.Errorf("%+v", removed)
		}
	})
}

// TestManyAtOnce has two hundred tenants, or, where time is short, fifty, ask at once for a place on a PostgreSQL that lets twenty connect.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const connections = 20
	tenants := 200
	if testing.Short() {
		tenants = 20
	}
	d := onPostgres(t, fmt.Sprint("max_connections=", connections))
	in := install(t)
	stop := in.run()
	defer func() { stop() }()
	in.object("many", d)
	in.await("-/many", event.Checked, &event.DatastoreChecked{})
	all := make([]*tenant, tenants)
	for i := range all {
		all[i] = in.tenant(fmt.Sprint("many-", i))
		all[i].t.Spec.DataStore = "many"
	}
	awaitAll := func(what, fact string) {
		began := time.Now()
		for _, x := range all {
			drivertest.Eventually(t, func() error { _, err := x.told(fact, nil); return err })
		}
		t.Logf("%d %s at once: %s", tenants, what, time.Since(began).Round(100*time.Millisecond))
	}
	before := d.holds(t)
	for _, x := range all {
		x.accept()
	}
	awaitAll("provisioned", event.Provisioned)
	in.must(d.enters(t.Context(), all[tenants/2]))
	if held := len(d.holds(t)) - len(before); held != 4*tenants { // a database, a role, two records
		t.Errorf("the server holds %d things for them", held)
	}
	for _, x := range all {
		x.remove()
	}
	awaitAll("removed", event.Removed)
	if after := d.holds(t); !slices.Equal(before, after) {
		t.Errorf("the server held %q, holds %q", before, after)
	}
}
