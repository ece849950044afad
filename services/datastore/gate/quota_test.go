package gate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/gate"
)

// bounded runs a gate with a quota until the test, or what is returned, ends it.
func bounded(t *testing.T, s *side, q gate.Quota) (c *clientv3.Client, end func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "gate")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	ready := make(chan struct{})
	running.Go(func() {
		if err := gate.Run(ctx, gate.Config{Listen: socket, Name: "pod-1", From: s.store, Quota: q, Log: slog.New(slog.DiscardHandler)},
			func() error { close(ready); return nil }); err != nil {
			t.Error(err)
		}
	})
	end = func() { cancel(); running.Wait() }
	t.Cleanup(end)
	select {
	case <-ready:
	case <-time.After(time.Minute):
		t.Fatal("the gate serves nothing")
	}
	return client(t, socket), end
}

// update changes a key, as API servers do.
func update(ctx context.Context, c *clientv3.Client, key, value string) error {
	got, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	done, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)).
		Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	if err == nil && !done.Succeeded {
		err = errors.New("it was changed meanwhile")
	}
	return err
}

// remove deletes a key, as API servers do.
func remove(ctx context.Context, c *clientv3.Client, key string) error {
	got, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	_, err = c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)).
		Then(clientv3.OpDelete(key)).Else(clientv3.OpGet(key)).Commit()
	return err
}

// smallGrowth is what an update may add within the control plane's reserve.
const smallGrowth = 1 << 10

func object(n int) string { return fmt.Sprintf("/registry/configmaps/default/object-%04d", n) }

// fill creates objects until one is refused, and returns how many there are then.
func fill(t *testing.T, c *clientv3.Client, from int, value string) int {
	t.Helper()
	for n := from; n < from+1000; n++ {
		if _, err := create(t.Context(), c, object(n), value); err != nil {
			isRefused(t, err)
			return n
		}
	}
	t.Fatal("nothing was refused")
	return 0
}

func isRefused(t *testing.T, err error) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "quota") {
		t.Errorf("got %v", err)
	}
}

func TestQuotaOfObjects(t *testing.T) {
	ctx := t.Context()
	s := newSide(t, "tenant_a")
	const bound = 100
	c, _ := bounded(t, s, gate.Quota{Objects: bound})

	t.Run("objects beyond it are refused", func(t *testing.T) {
		if n := fill(t, c, 0, "1"); n != bound {
			t.Errorf("%d objects were let in", n)
		}
	})
	t.Run("updates go on", func(t *testing.T) { must(t, update(ctx, c, object(0), "2")) })
	t.Run("what the control plane needs goes on, a tenth beyond it", func(t *testing.T) {
		for n := range bound/10 + 1 {
			_, err := create(ctx, c, fmt.Sprint("/registry/leases/kube-node-lease/node-", n), "1")
			if n < bound/10 {
				must(t, err)
			} else {
				isRefused(t, err)
			}
		}
		must(t, update(ctx, c, "/registry/leases/kube-node-lease/node-0", "2"))
	})
	t.Run("Events go on", func(t *testing.T) {
		lease, err := c.Grant(ctx, 3600)
		must(t, err)
		_, err = create(ctx, c, "/registry/events/default/a", "1", clientv3.WithLease(lease.ID))
		must(t, err)
	})
	t.Run("deletes make room, once they are more than a little", func(t *testing.T) {
		must(t, remove(ctx, c, object(0)))
		_, err := create(ctx, c, object(0), "1")
		isRefused(t, err)
		for n := range 20 {
			if n > 0 {
				must(t, remove(ctx, c, object(n)))
			}
		}
		_, err = create(ctx, c, object(0), "1")
		must(t, err)
	})
}

func TestQuotaOfBytes(t *testing.T) {
	ctx := t.Context()
	s := newSide(t, "tenant_a")
	const bound, size = 4 << 20, 64 << 10
	value := strings.Repeat("v", size)
	c, end := bounded(t, s, gate.Quota{Bytes: bound})
	n := fill(t, c, 0, value)
	if have := n * size; have > bound || have < bound*9/10 {
		t.Errorf("%d bytes were let in", have)
	}

	t.Run("updates that grow an object are refused, but for small ones", func(t *testing.T) {
		isRefused(t, update(ctx, c, object(0), value+value))
		must(t, update(ctx, c, object(0), value+"status"))
		must(t, update(ctx, c, object(0), value[1:]))
	})
	t.Run("an object that is being deleted may grow", func(t *testing.T) {
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"example.com/a"}}}
		must(t, update(ctx, c, object(1), stored(t, o)))
		o.Data = map[string][]byte{"padding": []byte(value)}
		isRefused(t, update(ctx, c, object(1), stored(t, o)))
		o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		must(t, update(ctx, c, object(1), stored(t, o)))
		must(t, update(ctx, c, object(2), `{"metadata":{"name":"a"}}`))
		isRefused(t, update(ctx, c, object(2), `{"metadata":{"name":"a"},"spec":"`+value+`"}`))
		must(t, update(ctx, c, object(2), `{"metadata":{"name":"a","deletionTimestamp":"2026-11-26T10:00:00Z"},"spec":"`+value+`"}`))
	})
	t.Run("when the control plane's reserve is used up, a lease may still become larger, and nothing else", func(t *testing.T) {
		lease := func(n int) string { return fmt.Sprint("/registry/leases/kube-node-lease/node-", n) }
		leases := 0
		for ; leases < 20; leases++ {
			if _, err := create(ctx, c, lease(leases), value); err != nil {
				isRefused(t, err)
				break
			}
		}
		if leases == 0 || leases > bound/5/size {
			t.Errorf("%d leases were let in", leases)
		}
		for n, err := 0, error(nil); err == nil; n++ {
			err = update(ctx, c, object(3+n), value+strings.Repeat("s", smallGrowth))
		}
		must(t, update(ctx, c, lease(0), value+"later"))
		for n := range leases {
			must(t, remove(ctx, c, lease(n)))
		}
	})
	t.Run("a gate that begins counts what is read", func(t *testing.T) {
		end()
		c, _ := bounded(t, s, gate.Quota{Bytes: bound})
		_, err := c.Get(ctx, "/registry/", clientv3.WithPrefix())
		must(t, err)
		if more := fill(t, c, n, value); more > n+2 {
			t.Errorf("%d more", more-n)
		}
	})
	t.Run("what others write and delete is counted by watches", func(t *testing.T) {
		c, _ := bounded(t, s, gate.Quota{Bytes: bound})
		got, err := c.Get(ctx, "/registry/", clientv3.WithPrefix())
		must(t, err)
		other, _ := bounded(t, s, gate.Quota{})
		watched := c.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision+1))
		for i := range n / 2 {
			must(t, remove(ctx, other, object(i)))
		}
		for told := 0; told < n/2; {
			told += len((<-watched).Events)
		}
		if again := fill(t, c, n+100, value) - n - 100; again < n/2-5 || again > n/2+5 {
			t.Errorf("%d more", again)
		}
	})
}

// TestEvents writes more of them than a quota lets in within an hour.
func TestEvents(t *testing.T) {
	ctx := t.Context()
	c, _ := bounded(t, newSide(t, "tenant_a"), gate.Quota{Bytes: 8 << 20})
	lease, err := c.Grant(ctx, 3600)
	must(t, err)
	value := strings.Repeat("v", 1<<20)
	n := 0
	for ; n < 10; n++ {
		if _, err = create(ctx, c, fmt.Sprint("/registry/events/default/", n), value, clientv3.WithLease(lease.ID)); err != nil {
			isRefused(t, err)
			break
		}
	}
	if n != 3 {
		t.Errorf("%d MiB were let in", n)
	}
	// By these, API servers say that they live.
	_, err = create(ctx, c, "/registry/masterleases/192.0.2.1", value, clientv3.WithLease(lease.ID))
	must(t, err)
}

// stored is an object as API servers store it.
func stored(t *testing.T, o runtime.Object) string {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	b, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), o)
	must(t, err)
	return string(b)
}

// TestChurn overwrites one object, which keeps few bytes and writes many.
func TestChurn(t *testing.T) {
	ctx := t.Context()
	c, _ := bounded(t, newSide(t, "tenant_a"), gate.Quota{Bytes: 8 << 20})
	value := strings.Repeat("v", 1<<20)
	_, err := create(ctx, c, object(0), value)
	must(t, err)
	for n := range 20 {
		if err = update(ctx, c, object(0), value); err != nil {
			isRefused(t, err)
			if n > 5 {
				t.Errorf("%d MiB were let in", n)
			}
			break
		}
	}
	if err == nil {
		t.Error("nothing was refused")
	}
	must(t, update(ctx, c, object(0), "1"))
	must(t, remove(ctx, c, object(0)))
}

// TestUsageIsNoted looks for the record of what a tenant keeps.
func TestUsageIsNoted(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a gate waits a minute until it has seen everything; TestQuotaOfBytes and TestQuotaOfObjects show what it counts")
	}
	s := newSide(t, "tenant_a")
	c, _ := bounded(t, s, gate.Quota{Objects: 20})
	n := fill(t, c, 0, "1")
	drivertest.Eventually(t, func() error {
		value, _, err := s.data.Record(t.Context(), driver.QuotaKey)
		if err != nil {
			return err
		}
		if u, ok := driver.DecodeUsage(value); !ok || u.Objects != int64(n) || !u.Full {
			return fmt.Errorf("it says %s", value)
		}
		return nil
	})
}
