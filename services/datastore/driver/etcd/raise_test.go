package etcd_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestRaise(t *testing.T) {
	server := etcdserver.Start(t)
	d := open(t, server.Config(t)).(driver.DataAccess)
	a := driver.Account{Owner: "uid", Schema: "raised", User: "raised"}
	now := func() int64 {
		t.Helper()
		got, err := server.Root.Get(t.Context(), "stoker.dev/raise")
		if err != nil || got.Count != 0 {
			t.Fatalf("%d keys of the raise are left: %v", got.Count, err)
		}
		return got.Header.Revision
	}
	size := func() int64 {
		t.Helper()
		status, err := server.Root.Status(t.Context(), server.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		return status.DbSize
	}
	t.Run("a few revisions are written, and never more than it takes", func(t *testing.T) {
		const missing = 20_000
		above, bytes, began := now()+missing, size(), time.Now()
		if err := d.Raise(t.Context(), a, driver.Access{}, above); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d revisions a second, of %d bytes each", int(missing/time.Since(began).Seconds()), (size()-bytes)/missing)
		at := now()
		if at <= above || at > above+200 {
			t.Errorf("the revision is %d, to be above %d", at, above)
		}
		if _, err := server.Root.Get(t.Context(), "/", clientv3.WithRev(above)); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("revision %d: %v", above, err)
		}
		for _, again := range []int64{above, above - 1, 0} {
			if err := d.Raise(t.Context(), a, driver.Access{}, again); err != nil || now() != at {
				t.Errorf("again to %d: the revision is %d: %v", again, now(), err)
			}
		}
	})
	t.Run("millions of them are refused, and it is said what helps", func(t *testing.T) {
		at := now()
		err := d.Raise(t.Context(), a, driver.Access{}, at+3_000_000)
		var behind *driver.BehindError
		if !errors.As(err, &behind) || *behind != (driver.BehindError{Above: at + 3_000_000, Now: at}) || now() != at {
			t.Fatal(err)
		}
		if message := err.Error(); !strings.Contains(message, "--bump-revision 3000000 --mark-compacted") {
			t.Error(message)
		}
	})
	t.Run("it ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := d.Raise(ctx, a, driver.Access{}, now()+1_000_000); !errors.Is(err, driver.ErrAway) {
			t.Error(err)
		}
	})
}
