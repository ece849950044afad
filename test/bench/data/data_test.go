// Package data measures what it takes to read and to write all that a tenant keeps, in each of the four kinds of DataStore, on real
// servers: `make bench BENCH=./bench/data`, or `make bench BENCH=./bench/data ONLY=Data/postgres/100000` for one of them.
package data

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/internal/testing/mysqlserver"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/internal/testing/postgresserver"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd"
	"github.com/stoker-k8s/stoker/services/datastore/driver/mysql"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
	"github.com/stoker-k8s/stoker/services/datastore/driver/postgres"
)

// size is how many keys a tenant has, and how many bytes of noise each of them holds.
type size struct{ keys, bytes int }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.keys, s.bytes) }

// sizes are those measured: of 2 kB, as many objects are, and of a size at which keys count more than what they hold.
var sizes = []size{{1_000, 2048}, {10_000, 2048}, {100_000, 2048}, {300_000, 300}}

// kind is one of DataStores.
type kind struct {
	name  string
	open  driver.Open
	start func(b *testing.B) driver.Config
}

// kinds in the order of the table's lines.
var kinds = []kind{
	{local.DriverEtcd, etcd.Open, func(b *testing.B) driver.Config { return etcdserver.Start(b).Config(b) }},
	{local.DriverPostgres, postgres.Open, func(b *testing.B) driver.Config { return postgresserver.Start(b).Config() }},
	{local.DriverMySQL, mysql.Open, func(b *testing.B) driver.Config { return mysqlserver.Start(b).Config() }},
	{local.DriverNATS, nats.Open, func(b *testing.B) driver.Config { return natsserver.Start(b, natsserver.Options{}).Config(b) }},
}

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(asked) != "" {
		os.Exit(answer(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// BenchmarkData imports so many keys into each kind of DataStore, and exports them again. Each is done by a process of its own, whose
// memory and CPU time therefore are those of the import or the export, kine included, and of nothing else.
func BenchmarkData(b *testing.B) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := strings.Repeat("\topen s\tall s\tkeys/s\tMB/s\tCPU s\tserver's\tpeak MB", 2)
	fmt.Fprintln(w, "\nimport, then export"+columns+"\t")
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			config := k.start(b)
			d, err := k.open(config)
			check(b, err)
			b.Cleanup(func() { check(b, d.Close()) })
			for _, s := range sizes {
				b.Run(s.String(), func(b *testing.B) {
					for b.Loop() {
						measure(b, w, task{Kind: k.name, Config: config, Keys: s.keys, Bytes: s.bytes}, d)
					}
				})
			}
		})
	}
	fmt.Fprintln(os.Stdout)
	check(b, w.Flush())
}

// measure prints a line.
func measure(b *testing.B, w *tabwriter.Writer, t task, d driver.Driver) {
	b.Helper()
	name := fmt.Sprintf("%d-%d", t.Keys, t.Bytes)
	t.Account = driver.Account{Owner: "uid-" + name, Schema: "b-" + name, User: "b-" + name, Password: "not-used-by-all"}
	_, err := d.Provision(b.Context(), t.Account)
	check(b, err)
	fmt.Fprintf(w, "%s, %d of %d B", t.Kind, t.Keys, t.Bytes)
	for _, t.Export = range []bool{false, true} {
		r := t.run(b)
		rate := float64(t.Keys) / r.All
		fmt.Fprintf(w, "\t%.1f\t%.2f\t%.0f\t%.1f\t%.1f\t%.1f\t%.0f", r.Open, r.All, rate, rate*float64(t.Bytes)/1e6, r.cpu, r.serverCPU, r.PeakMB)
		b.ReportMetric(rate, map[bool]string{false: "imported/s", true: "exported/s"}[t.Export])
		b.ReportMetric(r.PeakMB, map[bool]string{false: "import-MB", true: "export-MB"}[t.Export])
	}
	fmt.Fprintln(w, "\t")
	_, err = d.Drop(b.Context(), t.Account)
	check(b, err)
}

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
