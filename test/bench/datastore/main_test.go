// Package datastore measures the four kinds of DataStore beside each other, on real servers: `make bench BENCH=./bench/datastore`.
package datastore

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// drivers in the order of the tables' lines.
var drivers = []string{local.DriverEtcd, local.DriverPostgres, local.DriverMySQL, local.DriverNATS}

var e *env.Env

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		os.Exit(m.Run()) // no benchmark is asked for, so nothing need run for it
	}
	env.Main(m, func(started *env.Env) { e = started })
}

// open has a DataStore on a driver, of the driver's name.
func open(b *testing.B, driver string) {
	b.Helper()
	check(b, e.Local.AddDataStore(b.Context(), local.DataStore{Name: driver, Driver: driver}))
}

// tenant is a small one on a driver's DataStore.
func tenant(name, driver string) (*v1alpha1.TenantControlPlane, events.Key) {
	o := env.Tenant(name, "v1.36.3")
	o.Spec.DataStore, o.Spec.Addons = driver, v1alpha1.AddonsSpec{}
	return o, events.Tenant(o.Namespace, o.Name)
}

// table is the answer to one question, printed when it is complete.
type table struct{ *tabwriter.Writer }

// newTable begins one; columns are the names of all but the first.
func newTable(question string, columns ...string) table {
	t := table{tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)}
	t.line(question, columns)
	return t
}

func (t table) print(b *testing.B) {
	b.Helper()
	fmt.Fprintln(os.Stdout)
	check(b, t.Flush())
}

func (t table) line(name string, cells []string) {
	fmt.Fprintln(t, strings.Join(append([]string{name}, cells...), "\t")+"\t")
}

// row prints a line: what is measured, in its unit, with as many digits as are known.
func (t table) row(name string, cells ...any) {
	var text []string
	for _, c := range cells {
		switch c := c.(type) {
		case time.Duration:
			text = append(text, fmt.Sprintf("%.0f", float64(c)/float64(time.Millisecond)))
		case float64:
			text = append(text, fmt.Sprintf("%.1f", c))
		default:
			text = append(text, fmt.Sprint(c))
		}
	}
	t.line(name, text)
}

// at is the value below which a share of all are.
func at(all []time.Duration, share float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func median(all []time.Duration) time.Duration { return at(all, 0.5) }

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
