package nats_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
)

// TestEventsOfBeforeEnd has Events end that a kine wrote before it was started again, and nothing else.
func TestEventsOfBeforeEnd(t *testing.T) {
	t.Parallel()
	d := open(t, natsserver.Start(t, natsserver.Options{}).Config(t))
	now := time.Now()
	nats.SetNow(d, func() time.Time { return now })
	a := account("expires")
	access := join(t, d, a)
	kine := drivertest.RunKine(t, access, func(credentials string) string { return endpoint(d, a, credentials) }, "--compact-interval=0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const event, stays, renewed = "/registry/events/default/a", "/registry/events/default/stays", "/registry/events/default/renewed"
	put := func(key string, at, seconds int64) int64 {
		t.Helper()
		var options []clientv3.OpOption
		if seconds > 0 {
			lease, err := kine.Client.Grant(ctx, seconds)
			check(t, err)
			options = append(options, clientv3.WithLease(lease.ID))
		}
		done, err := kine.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).Then(clientv3.OpPut(key, "value", options...)).Else(clientv3.OpGet(key)).Commit()
		check(t, err)
		if !done.Succeeded {
			t.Fatalf("%s is another", key)
		}
		return done.Header.Revision
	}
	at := put(event, 0, 3600)
	put(stays, 0, 0)
	last := put(renewed, put(renewed, 0, 3600), 3*3600)
	kine.End(syscall.SIGTERM)
	kine.Start(t)
	watched := kine.Client.Watch(ctx, "/registry/events/", clientv3.WithPrefix(), clientv3.WithRev(last+1))
	for _, passed := range []time.Duration{0, 90 * time.Minute, time.Hour} {
		now = now.Add(passed)
		got, err := kine.Client.Get(ctx, "/registry/events/", clientv3.WithPrefix())
		check(t, err)
		if len(got.Kvs) != 3 {
			t.Fatalf("there are %v", got.Kvs)
		}
		_, err = d.(driver.Compactor).Compact(ctx)
		check(t, err)
	}
	said := <-watched
	if len(said.Events) != 1 || said.Events[0].Type != mvccpb.DELETE || string(said.Events[0].Kv.Key) != event || said.Events[0].Kv.ModRevision <= at {
		t.Errorf("watched %v: %v", said.Events, said.Err())
	}
	got, err := kine.Client.Get(ctx, "/registry/events/", clientv3.WithPrefix())
	check(t, err)
	if len(got.Kvs) != 2 {
		t.Errorf("left are %v", got.Kvs)
	}
	put(event, 0, 0)
}
