package nats_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
)

func dataOf(t *testing.T, d driver.Driver, a driver.Account, access driver.Access) driver.Data {
	t.Helper()
	data, err := d.(driver.DataAccess).Data(t.Context(), a, access)
	check(t, err)
	t.Cleanup(func() { check(t, data.Close()) })
	return data
}

// one is a change of one key.
func one(c driver.Change) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) { yield(c, nil) }
}

// TestExportBesideAWriter has a key be written so often that its messages of before are pushed out while exports note what is in the bucket.
func TestExportBesideAWriter(t *testing.T) {
	t.Parallel()
	d := open(t, natsserver.Start(t, natsserver.Options{}).Config(t))
	a := account("busy")
	access := join(t, d, a)
	data, writer := dataOf(t, d, a, access), dataOf(t, d, a, access)
	want := drivertest.Plain(2000)
	drivertest.Fill(t, data, want)
	const key = "leases/busy"
	check(t, data.Import(t.Context(), one(driver.Change{Key: key, Value: []byte("0")})))
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ; n++ {
			<-tick.C
			if err := writer.Import(ctx, one(driver.Change{Key: key, Value: fmt.Append(nil, n)})); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
	})
	whole := 0
	const exports = 5
	for range exports {
		at, err := data.Revision(t.Context())
		check(t, err)
		n, has := 0, false
		for c, err := range data.Export(t.Context(), at) {
			if errors.Is(err, driver.ErrCompacted) {
				n = -1
				break
			}
			check(t, err)
			n, has = n+1, has || c.Key == key
		}
		if n < 0 {
			continue
		}
		if whole++; n != len(want)+1 || !has {
			t.Errorf("an export of %d keys has the one that is written: %t", n, has)
		}
	}
	cancel()
	check(t, g.Wait())
	if whole == 0 {
		t.Error("no export has all keys")
	}
	t.Logf("%d of %d exports were whole, and the others said that they weren't", whole, exports)
}

// TestWritersOfOneKey has three write, mark and delete the same in a cluster, of whom each hears that another was faster, and nothing else.
func TestWritersOfOneKey(t *testing.T) {
	t.Parallel()
	d := open(t, natsserver.StartCluster(t, natsserver.Options{})[0].Config(t))
	a := account("shared")
	drivertest.Eventually(t, func() error { _, err := d.Provision(t.Context(), a); return err })
	access := join(t, d, a)
	all := [3]driver.Data{}
	for w := range all {
		drivertest.Eventually(t, func() (err error) { // while the cluster gets to know the account
			all[w], err = d.(driver.DataAccess).Data(t.Context(), a, access)
			return err
		})
		t.Cleanup(func() { check(t, all[w].Close()) })
	}
	var g errgroup.Group
	for w, data := range all {
		g.Go(func() error {
			for n := range 40 {
				if _, err := data.Mark(t.Context()); err != nil {
					return err
				}
				for _, c := range []driver.Change{{Key: "k", Value: fmt.Append(nil, w, n)}, {Key: "k", Deleted: n%3 == 0, Value: []byte("v")}} {
					if err := data.Import(t.Context(), one(c)); err != nil {
						return err
					}
				}
				_, revision, err := data.Record(t.Context(), driver.QuotaKey)
				if err != nil {
					return err
				}
				if _, err := data.SetRecord(t.Context(), driver.QuotaKey, fmt.Append(nil, w), revision); err != nil && !errors.Is(err, driver.ErrRaced) {
					return err
				}
			}
			return nil
		})
	}
	check(t, g.Wait())
}

// TestDeletionThatWasCutOff has a kine make a key again whose deletion was cut off before its mark, once the deletion is asked for again.
func TestDeletionThatWasCutOff(t *testing.T) {
	t.Parallel()
	d := open(t, natsserver.Start(t, natsserver.Options{}).Config(t))
	a := account("cut-off")
	access := join(t, d, a)
	data := dataOf(t, d, a, access)
	const key = "configmaps/default/a"
	check(t, data.Import(t.Context(), one(driver.Change{Key: key, Value: []byte("first")})))
	check(t, nats.CutOff(t.Context(), data, key))
	at, err := data.Revision(t.Context())
	check(t, err)
	for c := range data.Export(t.Context(), at) {
		t.Errorf("it is exported: %v", c)
	}
	check(t, data.Import(t.Context(), one(driver.Change{Key: key, Deleted: true})))
	kine := drivertest.RunKine(t, access, func(credentials string) string { return endpoint(d, a, credentials) })
	done, err := kine.Client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision("/registry/"+key), "=", 0)).
		Then(clientv3.OpPut("/registry/"+key, "second")).Else(clientv3.OpGet("/registry/" + key)).Commit()
	check(t, err)
	if !done.Succeeded {
		t.Errorf("kine says that it is there: %v", done.Responses)
	}
}

// TestBucketThatGoes has who follows a bucket hear that it is gone, and not wait for ever.
func TestBucketThatGoes(t *testing.T) {
	t.Parallel()
	server := natsserver.Start(t, natsserver.Options{Users: natsserver.Users})
	d := open(t, server.Config(t))
	a := account("goes")
	data := dataOf(t, d, a, join(t, d, a))
	at, err := data.Revision(t.Context())
	check(t, err)
	ended := make(chan error, 1)
	go func() {
		for _, err := range data.Follow(t.Context(), at, 0) {
			ended <- err
			return
		}
		ended <- nil
	}()
	time.AfterFunc(time.Second, func() { _, _ = d.Drop(context.WithoutCancel(t.Context()), a) })
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ends as if all was told")
		}
		t.Log(err)
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
}
