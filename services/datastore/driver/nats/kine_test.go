package nats_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// endpoint is kine's, as the tenants' pods have it.
func endpoint(d driver.Driver, a driver.Account, credentials string) string {
	return fmt.Sprintf("nats://?contextFile=%s&bucket=%s&replicas=%d&noEmbed", credentials, a.Schema, d.(driver.Replicated).Replicas())
}

func TestKine(t *testing.T) {
	t.Parallel()
	server := natsserver.Start(t, natsserver.Options{TLS: "verify: true"})
	c := server.Config(t)
	c.CAKey = server.CA.KeyPEM(t)
	c.ClientCert, c.ClientKey = server.CA.Issue(t, "stoker")
	d := open(t, c)
	drivertest.Kine(t, d, func(a driver.Account, credentials string) string { return endpoint(d, a, credentials) })
	kineLives(t, d, server)
}

func TestKineOfTheOnlyTenant(t *testing.T) {
	t.Parallel()
	server := natsserver.Start(t, natsserver.Options{Users: natsserver.Users})
	d := open(t, server.Config(t))
	kineLives(t, d, server)
}

// kineLives shows what NATS does differently: leases, deletions, old revisions and compaction, a server that goes and
// comes back, and that kine never asks for what it may not have.
func kineLives(t *testing.T, d driver.Driver, server *natsserver.Server) {
	t.Helper()
	a := driver.Account{Owner: "uid", Schema: "lives", User: "lives", Password: "password"}
	_, err := d.Provision(t.Context(), a)
	check(t, err)
	access, err := d.Access(a, driver.Access{}, time.Now())
	check(t, err)
	kine := drivertest.RunKine(t, access, func(credentials string) string { return endpoint(d, a, credentials) }, "--compact-interval=1s")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const key, leased = "/registry/configmaps/default/a", "/registry/configmaps/default/leased"
	write := func(key, value string, at int64, options ...clientv3.OpOption) int64 {
		t.Helper()
		done, err := kine.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).Then(clientv3.OpPut(key, value, options...)).Else(clientv3.OpGet(key)).Commit()
		check(t, err)
		if !done.Succeeded {
			t.Fatalf("%s is another", key)
		}
		return done.Header.Revision
	}
	watched := kine.Client.Watch(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	first := write(key, "first", 0)
	second := write(key, "second", first)
	old, err := kine.Client.Get(ctx, key, clientv3.WithRev(first))
	check(t, err)
	if len(old.Kvs) != 1 || string(old.Kvs[0].Value) != "first" {
		t.Errorf("at revision %d there is %v", first, old.Kvs)
	}
	lease, err := kine.Client.Grant(ctx, 1)
	check(t, err)
	write(leased, "leased", 0, clientv3.WithLease(lease.ID))
	gone, err := kine.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", second)).Then(clientv3.OpDelete(key)).Else(clientv3.OpGet(key)).Commit()
	check(t, err)
	if !gone.Succeeded {
		t.Fatal("it is not deleted")
	}
	seen := map[string]int{}
	for seen["DELETE "+leased] == 0 {
		answer, more := <-watched
		if !more || answer.Err() != nil {
			t.Fatalf("the watch ended with %v after %v", answer.Err(), seen)
		}
		for _, e := range answer.Events {
			seen[fmt.Sprintf("%s %s", e.Type, e.Kv.Key)]++
		}
	}
	if want := map[string]int{"PUT " + key: 2, "DELETE " + key: 1, "PUT " + leased: 1, "DELETE " + leased: 1}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("saw %v", seen)
	}
	_, err = kine.Client.Compact(ctx, second)
	check(t, err)
	status, err := kine.Client.Status(ctx, kine.Client.Endpoints()[0])
	check(t, err)
	if status.DbSize == 0 {
		t.Error("it has no size")
	}
	write(leased, "kept", 0)
	server.Stop()
	server.Run(t)
	drivertest.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		got, err := kine.Client.Get(ctx, leased)
		if err == nil && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "kept") {
			err = fmt.Errorf("there is %v", got.Kvs)
		}
		if err == nil {
			_, err = kine.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("/registry/x"), "=", 0)).Then(clientv3.OpPut("/registry/x", "")).Commit()
		}
		return err
	})
	if log := kine.Log(t); strings.Contains(strings.ToLower(log), "permission") {
		t.Errorf("kine may not do something:\n%s", log)
	}
	_, err = d.Drop(t.Context(), a)
	check(t, err)
}
