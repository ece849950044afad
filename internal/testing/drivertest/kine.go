package drivertest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoker-k8s/stoker/internal/testing/built"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// A RunningKine is a real kine with what Access gave its tenant, and nothing else.
type RunningKine struct {
	*testserver.Process
	// Client speaks to it as an API server does.
	Client *clientv3.Client

	program testserver.Program
	dir     *testserver.Dir
	args    []string
}

// RunKine starts a kine. endpoint is what --endpoint says, given the path of the Access' credentials; more are flags.
func RunKine(t testing.TB, access driver.Access, endpoint func(credentials string) string, more ...string) *RunningKine {
	t.Helper()
	k := &RunningKine{program: testserver.Program{Path: built.Program(t, "kine", "kine", "STOKER_TEST_KINE")}, dir: testserver.OwnDir(t, "kine")}
	at := "127.0.0.1:" + strconv.Itoa(port.Free(t))
	k.args = append([]string{
		"--listen-address=tcp://" + at, "--metrics-bind-address=0", "--endpoint=" + endpoint(k.dir.Write(t, "credentials", access.Credentials)),
	}, more...)
	for flag, data := range map[string][]byte{"ca": access.CA, "cert": access.Cert, "key": access.Key} {
		if len(data) > 0 {
			k.args = append(k.args, "--"+flag+"-file="+k.dir.Write(t, flag, data))
		}
	}
	var err error
	k.Client, err = clientv3.New(clientv3.Config{Endpoints: []string{"http://" + at}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Client.Close() })
	k.Start(t)
	t.Cleanup(func() { k.End(syscall.SIGTERM) })
	return k
}

// Start starts it again after its End.
func (k *RunningKine) Start(t testing.TB) {
	t.Helper()
	began := time.Now()
	k.Process = k.dir.Run(t, k.program, k.args...)
	k.Await(t, func(ctx context.Context) error { _, err := k.Client.Get(ctx, "/registry/health"); return err })
	t.Logf("kine answers after %s", time.Since(began).Round(time.Millisecond))
}

// Log is what it has said.
func (k *RunningKine) Log(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(k.dir.Path, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// Kine shows that a real kine serves the etcd API with what Provision and Access gave the tenant, and nothing else; and
// that it neither reads nor writes once the account is dropped. dsn is what kine's --endpoint says, given the account and
// the path of its credentials.
func Kine(t *testing.T, d driver.Driver, dsn func(a driver.Account, credentials string) string) {
	a := of("uid", "with_kine-1.a", "with_kine-1.a")
	if d.Validate(a) != nil {
		a.Schema, a.User = "with_kine-1", "with_kine-1"
	}
	a.Password = "a.password_of~kine-1"
	_, err := d.Provision(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	access, err := d.Access(a, driver.Access{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	kine := RunKine(t, access, func(credentials string) string { return dsn(a, credentials) })
	client := kine.Client
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const keys = 100
	watched := client.Watch(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithRev(1))
	revision := map[string]int64{}
	for i := range keys {
		key := fmt.Sprint("/registry/configmaps/default/", i)
		done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "first")).Commit()
		must(err)
		if !done.Succeeded {
			t.Fatalf("%s is there already", key)
		}
		revision[key] = done.Header.Revision
	}
	for key, at := range revision {
		done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).Then(clientv3.OpPut(key, "second")).Else(clientv3.OpGet(key)).Commit()
		must(err)
		if !done.Succeeded {
			t.Fatalf("%s was changed", key)
		}
	}
	for seen := 0; seen < 2*keys; {
		select {
		case r := <-watched:
			must(r.Err())
			seen += len(r.Events)
		case <-ctx.Done():
			t.Fatalf("watched %d changes", seen)
		}
	}
	count := func() int64 {
		t.Helper()
		list, err := client.Get(ctx, "/registry/configmaps/", clientv3.WithPrefix())
		must(err)
		for _, kv := range list.Kvs {
			if string(kv.Value) != "second" {
				t.Errorf("%s is %s", kv.Key, kv.Value)
			}
		}
		return int64(len(list.Kvs))
	}
	if n := count(); n != keys {
		t.Errorf("%d keys", n)
	}
	// As the drift that an operator looks for: all is right while kine is at work.
	if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
		t.Errorf("changed %q: %v", changed, err)
	}
	kineSeal(t, d, a, kine, "/registry/configmaps/default/1")
	kine.End(syscall.SIGTERM)
	kine.Start(t)
	if n := count(); n != keys {
		t.Errorf("%d keys after a restart", n)
	}
	if removed, err := d.Drop(t.Context(), a); err != nil || removed[driver.RemovedOwner] != 2 {
		t.Errorf("removed %v: %v", removed, err)
	}
	Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.Get(ctx, "/registry/configmaps/default/1"); err == nil {
			return errors.New("kine still reads")
		}
		return nil
	})
}

// URL is an endpoint of kine's as the tenants' pods put it together from their Secret.
func URL(scheme, endpoint string, a driver.Account) string {
	return (&url.URL{Scheme: scheme, User: url.UserPassword(a.User, a.Password), Host: endpoint, Path: a.Schema}).String()
}
