package data

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// neighbourSize is what is read and written beside a neighbour.
var neighbourSize = size{50_000, 2048}

// BenchmarkNeighbour shows what a tenant notices of another one's data being read or written in the same database, as a move or a backup does:
// how long its writes take, a hundred a second, one after the other.
func BenchmarkNeighbour(b *testing.B) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\na write of a neighbour's, ms")
	for _, when := range []string{"alone", "export", "import"} {
		fmt.Fprintf(w, "\t%s: median\t99 %%\tmost", when)
	}
	fmt.Fprintln(w, "\t")
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			for b.Loop() {
				neighbour(b, w, k)
			}
		})
	}
	fmt.Fprintln(os.Stdout)
	check(b, w.Flush())
}

func neighbour(b *testing.B, w *tabwriter.Writer, k kind) {
	b.Helper()
	c := newChurn(b, k)
	t := task{Kind: k.name, Config: c.config, Keys: neighbourSize.keys, Bytes: neighbourSize.bytes}
	account := func(name string) driver.Account {
		a := driver.Account{Owner: "uid-" + name, Schema: name, User: name, Password: "not-used-by-all"}
		_, err := c.d.Provision(b.Context(), a)
		check(b, err)
		return a
	}
	t.Account = account("read")
	t.run(b)
	fmt.Fprint(w, k.name)
	show := func(did string, meanwhile func()) {
		ctx, cancel := context.WithCancel(b.Context())
		var took []time.Duration
		var g errgroup.Group
		g.Go(func() (err error) { took, err = c.writes(ctx); return err })
		meanwhile()
		cancel()
		check(b, g.Wait())
		slices.Sort(took)
		for _, part := range []float64{0.5, 0.99, 1} {
			ms := took[int(part*float64(len(took)-1))].Seconds() * 1000
			fmt.Fprintf(w, "\t%.1f", ms)
			b.ReportMetric(ms, fmt.Sprintf("%s-ms-%.0f%%", did, 100*part))
		}
	}
	show("alone", func() { time.Sleep(10 * time.Second) }) //nolint:forbidigo // that is how long it is measured
	t.Export = true
	show("export", func() { t.run(b) })
	t.Export, t.Account = false, account("written")
	show("import", func() { t.run(b) })
	fmt.Fprintln(w, "\t")
}

// writes is how long each write took, until ctx ends.
func (c *churn) writes(ctx context.Context) (took []time.Duration, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		if err := c.put(context.WithoutCancel(ctx), object(len(took)%100), 2048); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		<-tick.C
	}
	return took, nil
}
