package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// small has an etcd of 64 MiB, of which most values take 55 to 60.
const (
	small = "--quota-backend-bytes=67108864"
	most  = 850
)

// fill writes so many values of 64 KiB, or until there is no room, and deletes all but some of them. It writes many by one transaction: written
// one by one on a machine that is busy, each may have a commit of its own, which leaves holes that none of the next fits into.
func fill(t *testing.T, server *etcdserver.Server, values, left int) (full bool) {
	t.Helper()
	const together = 16
	value := strings.Repeat("x", 64<<10)
	for n := 0; n < values && !full; n += together {
		var puts []clientv3.Op
		for i := n; i < min(n+together, values); i++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/fill/%04d", i), value))
		}
		_, err := server.Root.Txn(t.Context()).Then(puts...).Commit()
		if full = errors.Is(err, rpctypes.ErrNoSpace); err != nil && !full {
			t.Fatal(err)
		}
	}
	if _, err := server.Root.Delete(t.Context(), fmt.Sprintf("/fill/%04d", left), clientv3.WithFromKey()); err != nil {
		t.Fatal(err)
	}
	return full
}

// compacts calls Compact, which does nothing else.
func compacts(t *testing.T, d driver.Driver) {
	t.Helper()
	if did, err := d.(driver.Compactor).Compact(t.Context()); err != nil || did != "" {
		t.Errorf("it did %q: %v", did, err)
	}
}

// defragments calls Compact until it has done something else: etcd frees pages in its own time.
func defragments(t *testing.T, d driver.Driver, want ...string) (did string) {
	t.Helper()
	drivertest.Eventually(t, func() (err error) {
		if did, err = d.(driver.Compactor).Compact(t.Context()); err == nil && did == "" {
			err = errors.New("it does nothing")
		}
		return err
	})
	t.Log(did)
	for _, w := range want {
		if !strings.Contains(did, w) {
			t.Errorf("it did %q, want %q", did, w)
		}
	}
	return did
}

func mebibytes(t *testing.T, server *etcdserver.Server) int64 {
	t.Helper()
	status, err := server.Root.Status(t.Context(), server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return status.DbSize >> 20
}

func TestAnEtcdIsDefragmentedBeforeItIsFull(t *testing.T) {
	t.Parallel()
	t.Run("of free pages", func(t *testing.T) {
		t.Parallel()
		server := etcdserver.Start(t, small)
		d := open(t, server.Config(t))
		if fill(t, server, most, 10) {
			t.Fatal("it is full already")
		}
		drivertest.Eventually(t, func() error { // etcd writes in its own time
			if has := mebibytes(t, server); has < 51 {
				return fmt.Errorf("its file has %d MiB", has)
			}
			return nil
		})
		defragments(t, d, "defragmented", "of a quota of 64")
		if after := mebibytes(t, server); after > 4 {
			t.Errorf("its file has %d MiB", after)
		}
		compacts(t, d)
	})
	t.Run("not if it is in use", func(t *testing.T) {
		t.Parallel()
		server := etcdserver.Start(t, small)
		d := open(t, server.Config(t))
		fill(t, server, most, 780)
		for range 3 {
			compacts(t, d)
		}
	})
	t.Run("and takes writes again after it was", func(t *testing.T) {
		t.Parallel()
		server := etcdserver.Start(t, small)
		d := open(t, server.Config(t))
		if !fill(t, server, 3000, 720) {
			t.Fatal("it has room")
		}
		defragments(t, d, "defragmented", "NOSPACE disarmed")
		if _, err := server.Root.Put(t.Context(), "/new", "value"); err != nil {
			t.Error(err)
		}
		compacts(t, d)
	})
}

func TestOneMemberOfAnEtcdAfterTheOther(t *testing.T) {
	t.Parallel()
	first := etcdserver.Start(t, small, "--strict-reconfig-check=false") // which wants members to be there for five seconds before others are added
	second := first.Join(t)
	third := second.Join(t)
	c := first.Config(t)
	c.Endpoints = []string{first.Endpoint, second.Endpoint, third.Endpoint}
	d := open(t, c)
	fill(t, first, most, 10)
	compacts(t, d)
	third.Kill(t)
	for range 2 { // Compact defragments no member while another is away
		drivertest.Eventually(t, func() error { // a call that the dead member would have answered fails
			did, err := d.(driver.Compactor).Compact(t.Context())
			if did != "" {
				t.Errorf("it did %q", did)
			}
			return err
		})
		time.Sleep(200 * time.Millisecond) //nolint:forbidigo // until etcd has freed pages
	}
	third.Run(t)
	third.Await(t)
	leader := func() string {
		for _, server := range []*etcdserver.Server{first, second, third} {
			if status, err := server.Root.Status(t.Context(), server.Endpoint); err == nil && status.Leader == status.Header.MemberId {
				return server.Endpoint
			}
		}
		return ""
	}
	done := map[string]bool{}
	for n := range 3 {
		leads := leader()
		at, _, _ := strings.Cut(defragments(t, d, "defragmented"), " ")
		done[at] = true
		if n < 2 && at == leads && leader() == leads { // else another has been elected meanwhile
			t.Errorf("%d. was the leader", n+1)
		}
	}
	if len(done) != 3 {
		t.Errorf("defragmented were %v", done)
	}
	compacts(t, d)
}
