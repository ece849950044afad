package driver_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/internal/testing/mysqlserver"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/internal/testing/postgresserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/limit"
	"github.com/stoker-k8s/stoker/services/datastore/driver/mysql"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
	"github.com/stoker-k8s/stoker/services/datastore/driver/postgres"
)

func init() { limit.Raise() }

// TestData is the contract of driver.DataAccess, on all databases and from each to each.
// One server of a kind serves all of it.
func TestData(t *testing.T) {
	server := etcdserver.Start(t)
	open := map[string]func() (driver.Driver, error){
		"etcd":     func() (driver.Driver, error) { return etcd.Open(server.Config(t)) },
		"postgres": func() (driver.Driver, error) { return postgres.Open(postgresserver.Start(t).Config()) },
		"mysql":    func() (driver.Driver, error) { return mysql.Open(mysqlserver.Start(t).Config()) },
		"nats":     func() (driver.Driver, error) { return nats.Open(natsserver.Start(t, natsserver.Options{}).Config(t)) },
	}
	ring := []string{"etcd", "postgres", "mysql", "nats"}
	journey, keys := []string{"postgres", "mysql", "nats", "etcd"}, 1000
	drivers := map[string]driver.Driver{}
	for _, kind := range ring {
		d, err := open[kind]()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		drivers[kind] = d
	}
	t.Run("all", func(t *testing.T) {
		for _, from := range ring {
			t.Run(from, func(t *testing.T) {
				t.Parallel()
				drivertest.Data(t, drivers[from])
				src, a := drivertest.OpenData(t, drivers[from], "matrix-"+from)
				drivertest.Fill(t, src, drivertest.Plain(50))
				for _, to := range ring {
					drivertest.Copy(t, drivers[from], src, a, drivers[to], from+"-to-"+to)
				}
			})
		}
		t.Run("thousands of keys come home from a journey over all databases", func(t *testing.T) {
			t.Parallel()
			from := drivers["etcd"]
			d, a := drivertest.OpenData(t, from, "home")
			drivertest.Fill(t, d, drivertest.Plain(keys))
			for _, to := range journey {
				d, a = drivertest.Copy(t, from, d, a, drivers[to], "journey-to-"+to)
				from = drivers[to]
			}
		})
	})
	t.Run("a revision that was compacted is an error of its own", func(t *testing.T) {
		for _, kind := range ring {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				root := map[string]*clientv3.Client{"etcd": server.Root}
				drivertest.Compaction(t, drivers[kind], root[kind])
			})
		}
	})
	t.Run("an export that a compaction overtakes lacks no key in silence", func(t *testing.T) {
		for _, kind := range ring[1:] {
			t.Run(kind, func(t *testing.T) {
				if testing.Short() && kind == "mysql" {
					t.Skip("long: kine compacts in MySQL as in PostgreSQL, which is shown")
				}
				t.Parallel()
				drivertest.Overtaken(t, drivers[kind])
			})
		}
	})
	t.Run("raise", func(t *testing.T) {
		for _, kind := range ring {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				drivertest.Raise(t, drivers[kind])
				if dsn := kineOf(drivers[kind], kind); dsn != nil {
					drivertest.RaiseKine(t, drivers[kind], dsn)
				}
			})
		}
	})
	t.Run("no kine is left", func(t *testing.T) {
		drivertest.Eventually(t, func() error {
			stacks := make([]byte, 1<<22)
			stacks = stacks[:runtime.Stack(stacks, true)]
			for stack := range strings.SplitSeq(string(stacks), "\n\n") {
				if strings.Contains(stack, "k3s-io/kine") && !outlastsKine(stack) {
					return fmt.Errorf("it is there:\n%s", stack)
				}
			}
			return nil
		})
	})
}

// outlastsKine reports whether a goroutine is one of the two that kine (v0.16.4) leaves when it ends while a watch begins: the watch receives from
// a nil channel, or its report of progress waits for a poll that has ended. Neither holds a connection.
func outlastsKine(stack string) bool {
	state, _, _ := strings.Cut(stack, "\n")
	return strings.Contains(state, "[chan receive (nil chan)") && strings.Contains(stack, "logstructured.(*LogStructured).Watch.func1(") ||
		strings.Contains(state, "[sync.Cond.Wait") && strings.Contains(stack, "server.(*watcher).ProgressIfSynced(")
}

// kineOf is what the --endpoint of a tenant's kine says, nil for a kind that does without.
func kineOf(d driver.Driver, kind string) func(a driver.Account, credentials string) string {
	switch kind {
	case "postgres":
		return func(a driver.Account, _ string) string { return drivertest.URL("postgres", d.Endpoint(), a) }
	case "mysql":
		return func(a driver.Account, _ string) string {
			return fmt.Sprintf("mysql://%s:%s@tcp(%s)/%s", a.User, a.Password, d.Endpoint(), a.Schema)
		}
	case "nats":
		return func(a driver.Account, credentials string) string {
			return fmt.Sprintf("nats://?contextFile=%s&bucket=%s&replicas=%d&noEmbed", credentials, a.Schema, d.(driver.Replicated).Replicas())
		}
	}
	return nil
}
