package etcd_test

import (
	"errors"
	"strconv"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
)

func TestCompact(t *testing.T) {
	server := etcdserver.Start(t)
	write := func() int64 {
		t.Helper()
		done, err := server.Root.Put(t.Context(), "key", "value")
		if err != nil {
			t.Fatal(err)
		}
		return done.Header.Revision
	}
	compact := func(c driver.Compactor) {
		t.Helper()
		if did, err := c.Compact(t.Context()); err != nil || did != "" {
			t.Fatalf("%q: %v", did, err)
		}
	}
	has := func(revision int64, want bool) {
		t.Helper()
		_, err := server.Root.Get(t.Context(), "key", clientv3.WithRev(revision))
		if compacted := errors.Is(err, rpctypes.ErrCompacted); err != nil && !compacted || compacted == want {
			t.Errorf("revision %d: %v", revision, err)
		}
	}
	one, other := open(t, server.Config(t)).(driver.Compactor), open(t, server.Config(t)).(driver.Compactor)
	first := write()
	compact(one)
	second := write()
	has(first, true)
	compact(one) // up to the time of the call before
	has(first, false)
	has(second, true)
	compact(other) // for the first time: it learns who compacts
	third := write()
	has(second, true)
	compact(other)
	has(second, false)
	has(third, true)
	compact(one) // the other was faster
	has(third, true)
	compact(one)
	has(third, false)

	said, err := server.Root.Get(t.Context(), "compact_rev_key")
	if err != nil {
		t.Fatal(err)
	}
	revision, err := strconv.ParseInt(string(said.Kvs[0].Value), 10, 64)
	if err != nil || revision <= third || revision >= said.Kvs[0].ModRevision {
		t.Errorf("compact_rev_key says %s at %d: %v", said.Kvs[0].Value, said.Kvs[0].ModRevision, err)
	}
	has(revision, true)
	has(revision-1, false)
}

// TestCompactAnEtcdOutOfRoom has one that takes no keys any more, so that what is deleted makes room once it is compacted.
func TestCompactAnEtcdOutOfRoom(t *testing.T) {
	server := etcdserver.Start(t)
	d := open(t, server.Config(t))
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := server.Root.Put(t.Context(), "key", "value")
	check(err)
	check(etcd.CompactOnly(t.Context(), d))
	status, err := server.Root.Status(t.Context(), server.Endpoint)
	check(err)
	_, err = etcdserverpb.NewMaintenanceClient(server.Root.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	check(err)
	deleted, err := server.Root.Delete(t.Context(), "key")
	check(err)
	for range 2 {
		check(etcd.CompactOnly(t.Context(), d)) // Compact would find that there is room, and disarm the alarm
	}
	if _, err := server.Root.Get(t.Context(), "key", clientv3.WithRev(deleted.Header.Revision-1)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Error(err)
	}
	_, err = server.Root.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	check(err)
	said, err := server.Root.Get(t.Context(), "compact_rev_key")
	if check(err); string(said.Kvs[0].Value) != "0" {
		t.Errorf("a full etcd took the key: %s", said.Kvs[0].Value)
	}
	check(etcd.CompactOnly(t.Context(), d))
}
