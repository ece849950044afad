package etcd_test

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// TestReadOnlyOf takes from a tenant the right to write some of its keys, and gives it back, while it writes the others.
func TestReadOnlyOf(t *testing.T) {
	ctx := t.Context()
	server := etcdserver.Start(t)
	d := open(t, server.Config(t))
	account := driver.Account{Owner: "uid", Schema: "s", User: "u"}
	provision := func(readOnly bool, of string) (changed []string) {
		t.Helper()
		a := account
		a.ReadOnly, a.ReadOnlyOf = readOnly, of
		changed, err := d.Provision(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	provision(false, "")
	access, err := d.Access(account, driver.Access{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	tenant := server.Connect(t, access.Cert, access.Key)
	sees := func(refused ...string) {
		t.Helper()
		for _, key := range []string{"a/1", "events/1", "leases/1", "m/1", "secrets/1", "stoker-move", "z"} {
			_, err := tenant.Put(ctx, "/s/"+key, "1")
			no := false
			for _, r := range refused {
				no = no || r == key
			}
			if errors.Is(err, rpctypes.ErrPermissionDenied) != no || err != nil && !no {
				t.Errorf("%s: %v", key, err)
			}
			if _, err := tenant.Get(ctx, "/s/"+key); err != nil {
				t.Errorf("%s isn't read: %v", key, err)
			}
		}
	}
	sees()
	for range 2 {
		provision(true, "secrets/,leases/")
		sees("leases/1", "secrets/1")
		if changed := provision(true, "secrets/,leases/"); len(changed) > 0 {
			t.Errorf("changed again: %q", changed)
		}
		provision(true, "events/")
		sees("events/1")
		provision(true, "")
		sees("a/1", "events/1", "leases/1", "m/1", "secrets/1", "stoker-move", "z")
		provision(false, "")
		sees()
	}
}
