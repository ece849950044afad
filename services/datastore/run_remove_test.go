package datastore_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// longest is how long a deletion may take that is held up by its DataStore: patience, and a last try, on a machine that is busy. Most take
// less.
const longest = 4 * time.Minute

// TestDeletion deletes tenants of one server, each over a DataStore of its own that something is the matter with.
func TestDeletion(t *testing.T) {
	t.Parallel()
	for kind, start := range databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			install(t).deletions(kind, d)
		})
	}
}

// deletion is a tenant that is deleted.
type deletion struct {
	*tenant
	tap   *tap
	began time.Time
}

func (in *installation) deletions(kind string, d database) {
	t, ctx := in.t, in.t.Context()
	if kind != "etcd" {
		d.config.CA = nil // without TLS it can be seen what is sent
	}
	admin, err := store.Drivers()[d.kind].Open(d.config)
	in.must(err)
	t.Cleanup(func() { _ = admin.Close() })
	in.must(admin.Check(ctx)) // makes what is the administrator's
	stop := in.run()
	defer func() { stop() }()
	behind := func(n string, counts func([]byte) bool) *tap {
		p := &tap{}
		p.open()
		with := d
		with.config.Endpoints = []string{p.wire(t, d.config.Endpoints[0], counts)}
		in.object("deletion-"+kind+"-"+n, with)
		return p
	}
	tenantOn := func(n, dataStore string, p *tap) *deletion {
		x := &deletion{tenant: in.tenant(n), tap: p}
		x.t.Spec.DataStore = "deletion-" + kind + "-" + dataStore
		return x
	}
	provision := func(x *deletion) *deletion {
		t.Helper()
		x.accept()
		x.await(event.Provisioned, &event.DatastoreProvisioned{})
		return x
	}
	remove := func(x *deletion) { t.Helper(); x.began = time.Now(); x.remove() }
	removed := func(x *deletion) (r event.Removals) {
		t.Helper()
		drivertest.Eventually(t, func() error {
			_, err := x.told(event.Removed, &r)
			return err
		})
		if secrets := r.Removed["datastore/Secret"]; secrets != 2 {
			t.Errorf("%s: %d Secrets removed", x.key.Name, secrets)
		}
		if _, err := x.secret(name.DatastoreConfig(x.key.Name)); !apierrors.IsNotFound(err) {
			t.Errorf("%s: its credentials: %v", x.key.Name, err)
		}
		return r
	}
	leaves := func(x *deletion, why string) {
		t.Helper()
		r := removed(x)
		at, _ := x.told(event.Removed, nil)
		t.Logf("%s: took %s, left %q", x.key.Name, at.Sub(x.began).Round(100*time.Millisecond), r.Left)
		if len(r.Left) != 1 {
			t.Fatalf("%s: %+v", x.key.Name, r)
		}
		a := x.account()
		for _, says := range []string{"left in DataStore " + x.t.Spec.DataStore, a.Schema, a.User, a.Owner, why} {
			if !strings.Contains(r.Left[0], says) {
				t.Errorf("%s: left is %q, which doesn't say %q", x.key.Name, r.Left[0], says)
			}
		}
		if _, own := x.state(); !slices.Equal(own.Left, r.Left) {
			t.Errorf("%s: its state says %q", x.key.Name, own.Left)
		}
	}
	nothing := func(x *deletion) {
		t.Helper()
		if r := removed(x); len(r.Left) > 0 || r.Removed["datastore/Owner"] != 2 || r.Removed["datastore/User"] != 1 {
			t.Errorf("%s: %+v", x.key.Name, r)
		}
	}

	open := behind("open", everything)
	var neighbours []*deletion
	for i, schema := range []string{"abc", "ab-", "ab_", "a"} {
		x := tenantOn(fmt.Sprint("neighbour-", i), "open", open)
		x.t.Spec.DataStoreSchema, x.t.Spec.DataStoreUsername = schema, schema
		neighbours = append(neighbours, provision(x))
	}
	before := d.holds(t)

	t.Run("what begins another tenant's names goes alone", func(t *testing.T) {
		x := tenantOn("ab", "open", open)
		x.t.Spec.DataStoreSchema, x.t.Spec.DataStoreUsername = "ab", "ab"
		remove(provision(x))
		nothing(x)
		if after := d.holds(t); !slices.Equal(before, after) {
			t.Errorf("the server held %q, holds %q", before, after)
		}
		for _, n := range neighbours {
			a := n.account()
			_, own := n.state()
			a.Schema, a.User = own.Schema, own.User
			data, _ := n.credentials()
			a.Password = string(data[name.KeyDBPassword])
			if changed, err := reprovision(ctx, admin, a); err != nil || len(changed) > 0 {
				t.Errorf("%s lacks %q: %v", a.Schema, changed, err)
			}
		}
	})
	t.Run("a DataStore that comes back in time is waited for", func(t *testing.T) {
		x := tenantOn("back", "back", behind("back", everything))
		provision(x)
		x.tap.cut()
		remove(x)
		drivertest.Eventually(t, func() error {
			if s, _ := x.state(); s.Failure == nil || s.Failure.Permanent {
				return errors.New("it says nothing of its failure")
			}
			return nil
		})
		x.tap.open()
		nothing(x)
	})
	t.Run("a Secret that somebody's finalizer keeps is named and waited for, without Kamaji's, and nothing is forgotten meanwhile", func(t *testing.T) {
		x := provision(tenantOn("kept", "open", open))
		secret := name.DatastoreConfig(x.key.Name)
		keep := func(finalizers ...string) {
			t.Helper()
			patch := map[string]any{"metadata": map[string]any{"finalizers": finalizers}}
			in.must(in.kube.MergePatch(ctx, kube.Secrets, x.namespace, secret, patch, nil))
		}
		keep(name.FinalizerDatastoreSecret, "example.com/hold")
		remove(x)
		drivertest.Eventually(t, func() error {
			s, _ := x.state()
			if s.Wait.Reason != reason.ObjectHeld || !strings.HasSuffix(s.Wait.Text, `finalizer "example.com/hold"`) || !strings.Contains(s.Wait.Text, secret) {
				return fmt.Errorf("it waits for %+v", s.Wait)
			}
			return nil
		})
		if s, _ := x.secret(secret); !slices.Equal(s.Finalizers, []string{"example.com/hold"}) {
			t.Errorf("its finalizers are %q", s.Finalizers)
		}
		keep()
		nothing(x)
	})

	// The rest is deleted side by side, for each waits for its DataStore.
	away := provision(tenantOn("away", "away", behind("away", everything)))
	silent := provision(tenantOn("silent", "silent", behind("silent", everything)))
	removes, at := everything, 5 // where messages can't be seen, the removal of the user
	if d.removal != "" {
		removes, at = func(message []byte) bool { return bytes.Contains(message, []byte(d.removal)) }, 1
	}
	halfway := provision(tenantOn("halfway", "halfway", behind("halfway", removes)))
	closed := provision(tenantOn("read-only", "open", open))
	gone := provision(tenantOn("gone", "gone", behind("gone", everything)))
	forgotten := provision(tenantOn("forgotten", "gone", gone.tap))
	all := []*deletion{away, silent, halfway, closed, gone, forgotten}

	_, err = in.kube.Delete(ctx, kube.DataStores, "", gone.t.Spec.DataStore, metav1.DeleteOptions{})
	in.must(err)
	// A tenant that comes before the service hears of that is provisioned.
	for missing, n := false, 0; !missing; n++ {
		late := tenantOn(fmt.Sprint("late-", n), "gone", gone.tap)
		late.accept()
		drivertest.Eventually(t, func() error {
			s, _ := late.state()
			missing = s.Wait.Reason == reason.DataStoreMissing
			if !missing && s.Step != event.Provisioned {
				return fmt.Errorf("it is at %q and waits for %+v", s.Step, s.Wait)
			}
			return nil
		})
		if !missing {
			all = append(all, late)
		}
		if n == 100 {
			t.Fatal("the service doesn't hear that the DataStore is gone")
		}
	}
	remove(gone)
	in.must(in.bus[name.ServiceIntake].Forget(ctx, forgotten.key))
	in.must(in.bus[name.ServiceIntake].CreateBucket(ctx, forgotten.key))
	remove(forgotten)
	away.tap.cut()
	remove(away)
	silent.tap.hangs, halfway.tap.hangs = true, true
	silent.tap.arm(1)
	remove(silent)
	reached := halfway.tap.arm(at)
	remove(halfway)
	select {
	case <-reached:
	case <-time.After(longest):
		t.Fatal("the deletion doesn't reach the data")
	}
	d.readOnly(t, true)
	remove(closed)

	t.Run("where the object is gone, also if NATS was lost, the deletion says what is left", func(t *testing.T) {
		leaves(gone, "there is no such DataStore")
		leaves(forgotten, "there is no such DataStore")
	})
	t.Run("a server that takes no writes holds nothing up", func(t *testing.T) {
		if d.left {
			leaves(closed, "")
		} else {
			nothing(closed)
		}
	})
	t.Run("a server that refuses, hangs, or hangs halfway holds nothing up", func(t *testing.T) {
		for _, x := range []*deletion{away, silent, halfway} {
			leaves(x, "")
		}
	})
	t.Run("what was left is on record, and goes by that", func(t *testing.T) {
		d.readOnly(t, false)
		drivertest.Eventually(t, func() error { return admin.Check(ctx) })
		for _, x := range all {
			drivertest.Eventually(t, func() error { // connections that were given up may hold locks
				dropped, err := admin.Drop(ctx, x.account())
				if err == nil && x != closed && dropped["Owner"] != 2 {
					err = fmt.Errorf("%s: removed %v", x.key.Name, dropped)
				}
				return err
			})
		}
		if after := d.holds(t); !slices.Equal(before, after) {
			t.Errorf("the server held %q, holds %q", before, after)
		}
	})
}
