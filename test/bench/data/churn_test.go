package data

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// What the clients of a tenant write in an hour. Events go when the next ones have come.
const (
	churnObjects, churnObjectBytes = 1_000, 2048
	churnEvents, churnEventBytes   = 200, 800
	churnUpdates                   = 200 // of one of the objects each
	churnLeases, churnRenewals     = 4, 450
	churnClients                   = 16
)

// churnHours are those after which a database is measured.
var churnHours = []int{1, 2, 6, 12, 24}

// BenchmarkChurn writes what a tenant's clients write in a day, in minutes, into each kind of DataStore, where history is given up after each
// hour by who does it for tenants, and shows what the tenant then takes. A line more is that of NATS where only kine does.
func BenchmarkChurn(b *testing.B) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nMB and keys after hours")
	for _, hour := range churnHours {
		fmt.Fprintf(w, "\t%d\t", hour)
	}
	fmt.Fprintln(w, "\twrites/s\t")
	for _, k := range kinds {
		for _, owned := range []bool{true, false} {
			if !owned && k.name != local.DriverNATS {
				continue // kine gives SQL databases' up by itself, and nobody would have an etcd that is never compacted
			}
			name := map[bool]string{true: k.name, false: k.name + ", kine alone"}[owned]
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					fmt.Fprint(w, name)
					newChurn(b, k).day(b, w, owned)
				}
			})
		}
	}
	fmt.Fprintln(os.Stdout)
	check(b, w.Flush())
}

// churn is a tenant's client, and what the service has of the database.
type churn struct {
	kind    kind
	config  driver.Config
	d       driver.Driver
	account driver.Account
	client  *clientv3.Client
	prefix  string
	events  []string // that are there
}

func newChurn(b *testing.B, k kind) *churn {
	b.Helper()
	c := &churn{kind: k, prefix: "/registry/"}
	c.account = driver.Account{Owner: "uid", Schema: "churn", User: "churn", Password: "not-used-by-all"}
	var server *etcdserver.Server
	if k.name == local.DriverEtcd {
		server = etcdserver.Start(b)
		c.config = server.Config(b)
	} else {
		c.config = k.start(b)
	}
	var err error
	c.d, err = k.open(c.config)
	check(b, err)
	b.Cleanup(func() { check(b, c.d.Close()) })
	_, err = c.d.Provision(b.Context(), c.account)
	check(b, err)
	access, err := c.d.Access(c.account, driver.Access{}, time.Now())
	check(b, err)
	at := c.config.Endpoints[0]
	switch k.name {
	case local.DriverEtcd:
		c.prefix = "/" + c.account.Schema + "/"
		c.client = server.Connect(b, access.Cert, access.Key)
	case local.DriverPostgres:
		c.client = c.kine(b, access, func(string) string { return drivertest.URL("postgres", at, c.account) })
	case local.DriverMySQL:
		c.client = c.kine(b, access, func(string) string {
			return fmt.Sprintf("mysql://%s:%s@tcp(%s)/%s", c.account.User, c.account.Password, at, c.account.Schema)
		})
	case local.DriverNATS:
		c.client = c.kine(b, access, func(credentials string) string {
			return fmt.Sprintf("nats://?contextFile=%s&bucket=%s&replicas=1&noEmbed", credentials, c.account.Schema)
		})
	}
	return c
}

// kine runs one that gives up history as often as it would in as much of a day.
func (c *churn) kine(b *testing.B, access driver.Access, endpoint func(credentials string) string) *clientv3.Client {
	b.Helper()
	return drivertest.RunKine(b, access, endpoint, "--compact-interval=1s").Client
}

// day writes what is written in a day.
func (c *churn) day(b *testing.B, w *tabwriter.Writer, owned bool) {
	b.Helper()
	c.each(b, churnObjects, func(i int) error { return c.put(b.Context(), object(i), churnObjectBytes) })
	writes, began, measuring := 0, time.Now(), time.Duration(0)
	for hour, measured := 1, 0; measured < len(churnHours); hour++ {
		writes += c.hour(b, hour)
		paused := time.Now()
		c.giveUp(b, owned)
		if hour == churnHours[measured] {
			measured++
			size := c.size(b)
			fmt.Fprintf(w, "\t%.1f\t%d", float64(size.Bytes)/1e6, size.Keys)
			b.ReportMetric(float64(size.Bytes)/1e6, fmt.Sprintf("MB-after-%dh", hour))
		}
		measuring += time.Since(paused)
	}
	fmt.Fprintf(w, "\t%.0f\t\n", float64(writes)/(time.Since(began)-measuring).Seconds())
}

func object(i int) string { return fmt.Sprintf("configmaps/default/object-%04d", i) }

// hour writes what is written in an hour, and returns how many writes that were.
func (c *churn) hour(b *testing.B, hour int) (writes int) {
	b.Helper()
	ctx, before := b.Context(), c.events
	c.events = nil
	for i := range churnEvents {
		c.events = append(c.events, fmt.Sprintf("events/default/of-%d.%d", hour, i))
	}
	c.each(b, churnEvents, func(i int) error { return c.put(ctx, c.events[i], churnEventBytes) })
	c.each(b, len(before), func(i int) error { return c.remove(ctx, before[i]) })
	c.each(b, churnUpdates, func(i int) error { return c.put(ctx, object((hour*churnUpdates+i)%churnObjects), churnObjectBytes) })
	c.each(b, churnLeases, func(i int) error {
		for range churnRenewals {
			if err := c.put(ctx, fmt.Sprintf("leases/kube-system/lease-%d", i), 300); err != nil {
				return err
			}
		}
		return nil
	})
	return churnEvents + len(before) + churnUpdates + churnLeases*churnRenewals
}

// each calls f for 0 to n-1, by all clients.
func (c *churn) each(b *testing.B, n int, f func(int) error) {
	b.Helper()
	var g errgroup.Group
	g.SetLimit(churnClients)
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	check(b, g.Wait())
}

// put writes a key as an API server does: it was read, and is as it was then.
func (c *churn) put(ctx context.Context, key string, size int) error {
	key = c.prefix + key
	value := make([]byte, size) // half of it can't be compressed
	for i := range size / 2 {
		value[i] = byte(rand.IntN(256))
	}
	return c.write(ctx, key, clientv3.OpPut(key, string(value)))
}

func (c *churn) remove(ctx context.Context, key string) error {
	key = c.prefix + key
	return c.write(ctx, key, clientv3.OpDelete(key))
}

// write changes a key. Nobody else does; but kine answers as if somebody did when the database has failed a statement, as MariaDB does with one
// of two that wait for each other, and so an API server reads the key again, and tries once more.
func (c *churn) write(ctx context.Context, key string, change clientv3.Op) error {
	const tries = 5
	for range tries {
		have, err := c.client.Get(ctx, key)
		if err != nil {
			return err
		}
		var revision int64
		if len(have.Kvs) > 0 {
			revision = have.Kvs[0].ModRevision
		}
		done, err := c.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(change).Else(clientv3.OpGet(key)).Commit()
		if err != nil || done.Succeeded {
			return err
		}
	}
	return fmt.Errorf("%s was written by somebody else", key)
}

// giveUp has history given up by who does it for tenants.
func (c *churn) giveUp(b *testing.B, owned bool) {
	b.Helper()
	if !owned {
		return
	}
	// Another driver each time, for one that goes on has hours between two looks at a bucket.
	d, err := c.kind.open(c.config)
	check(b, err)
	compactor, ok := d.(driver.Compactor)
	for range 3 {
		if ok {
			_, err := compactor.Compact(b.Context())
			check(b, err)
		}
		if c.kind.name != local.DriverEtcd { // kine has a second, as long as its interval
			time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // what ends then can't be seen
		}
	}
	check(b, d.Close())
}

// size is what the tenant takes.
func (c *churn) size(b *testing.B) driver.Size {
	b.Helper()
	sizes, err := c.d.(driver.Sizer).Sizes(b.Context())
	check(b, err)
	for schema, size := range sizes {
		if strings.EqualFold(schema, c.account.Schema) {
			return size
		}
	}
	b.Fatalf("there are sizes of %v", sizes)
	return driver.Size{}
}
