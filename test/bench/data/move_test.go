package data

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/move"
)

// moves are how many moves of a size are measured: with enough of one size for how long writes are held.
var moves = []struct {
	size
	times int
}{{size{1_000, 2048}, 1}, {size{10_000, 2048}, 20}, {size{100_000, 2048}, 1}}

// BenchmarkMove moves a tenant's data between each two kinds of DataStore, on servers that have nothing else to do, while a client writes a
// hundred times a second. Each move of a size is done by one process. There are no gates: what they add to the time for which writes are held
// is a request of the tenant's to each store, and a look every few milliseconds.
func BenchmarkMove(b *testing.B) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\na move\tcopied s\tkeys/s\tMB/s\tall s\tCPU s\tservers'\tpeak MB\theld ms: median\tmost\t")
	for _, from := range kinds {
		for _, to := range kinds {
			b.Run(from.name+"-to-"+to.name, func(b *testing.B) {
				source, target := from.start(b), to.start(b)
				for _, m := range moves {
					b.Run(m.String(), func(b *testing.B) {
						for b.Loop() {
							moveData(b, w, task{
								Kind: from.name, Config: source, Keys: m.keys, Bytes: m.bytes, Move: &moving{Kind: to.name, Config: target, Times: m.times},
								Account: driver.Account{Owner: "uid-" + m.String(), Schema: "m-" + m.String(), User: "m-" + m.String(), Password: "not-used-by-all"},
							})
						}
					})
				}
			})
		}
	}
	fmt.Fprintln(os.Stdout)
	check(b, w.Flush())
}

func moveData(b *testing.B, w *tabwriter.Writer, t task) {
	b.Helper()
	fill := t
	fill.Move = nil
	d := t.driver(b)
	_, err := d.Provision(b.Context(), t.Account)
	check(b, err)
	fill.run(b)
	r := t.run(b)
	_, err = d.Drop(b.Context(), t.Account)
	check(b, errors.Join(err, d.Close()))
	slices.Sort(r.Held)
	slices.Sort(r.Copied)
	copied, median := r.Copied[len(r.Copied)/2], r.Held[len(r.Held)/2]
	rate, n := float64(t.Keys)/copied, float64(t.Move.Times)
	fmt.Fprintf(w, "%s to %s, %d of %d B\t%.2f\t%.0f\t%.1f\t%.2f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t\n", t.Kind, t.Move.Kind, t.Keys, t.Bytes,
		copied, rate, rate*float64(t.Bytes)/1e6, r.All/n, r.cpu/n, r.serverCPU/n, r.PeakMB, 1000*median, 1000*r.Held[len(r.Held)-1])
	b.ReportMetric(rate, "copied/s")
	b.ReportMetric(r.PeakMB, "MB")
	b.ReportMetric(1000*median, "held-ms")
}

// moving is where the data of a task move, and how often: each time into an account of its own, from the same one.
type moving struct {
	Kind   string
	Config driver.Config
	Times  int
}

// driver opens the task's DataStore.
func (t task) driver(b *testing.B) driver.Driver {
	b.Helper()
	d, err := openKind(t.Kind, t.Config)
	check(b, err)
	return d
}

func openKind(name string, c driver.Config) (driver.Driver, error) {
	for _, k := range kinds {
		if k.name == name {
			return k.open(c)
		}
	}
	return nil, fmt.Errorf("there is no kind %q", name)
}

// move does the moves of a task.
func (t task) move(ctx context.Context, r *result) error {
	from, err := openKind(t.Kind, t.Config)
	if err != nil {
		return err
	}
	to, err := openKind(t.Move.Kind, t.Move.Config)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	for n := range t.Move.Times {
		target := t.Account
		target.Owner, target.Schema, target.User = t.Account.Owner+"-to", t.Account.Schema+"-to", t.Account.User+"-to"
		if err = t.moveOnce(ctx, from, to, target, strconv.Itoa(n), r); err != nil {
			break
		}
	}
	return errors.Join(err, from.Close(), to.Close())
}

func (t task) moveOnce(ctx context.Context, from, to driver.Driver, target driver.Account, id string, r *result) (err error) {
	provision := func(d driver.Driver, a driver.Account, readOnly bool) func(context.Context) error {
		return func(ctx context.Context) error {
			a.ReadOnly = readOnly
			_, err := d.Provision(ctx, a)
			return err
		}
	}
	if err := provision(to, target, false)(ctx); err != nil {
		return err
	}
	m := &move.Move{ID: id, What: id, Seal: provision(from, t.Account, true), Unseal: provision(from, t.Account, false)}
	if m.From, err = dataIn(ctx, from, t.Account); err != nil {
		return err
	}
	defer func() {
		m.Close()
		err = errors.Join(err, m.From.Close(), m.Unseal(ctx))
		if err == nil {
			_, err = to.Drop(ctx, target)
		}
	}()
	// As the service does: nothing is open while the revisions are raised.
	now, err := m.From.Revision(ctx)
	if err != nil {
		return err
	}
	const above = 2000
	access, err := to.Access(target, driver.Access{}, time.Now())
	if err != nil {
		return err
	}
	if err := to.(driver.DataAccess).Raise(ctx, target, access, now+above); err != nil {
		return err
	}
	if m.To, err = dataIn(ctx, to, target); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.To.Close()) }()
	if err := errors.Join(m.Take(ctx), m.Begin(ctx)); err != nil {
		return err
	}
	client, err := beginWriting(ctx, from, t.Account)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := m.Copy(ctx); err != nil {
		return errors.Join(err, client.end())
	}
	r.Copied = append(r.Copied, time.Since(began).Seconds())
	if err := m.Follow(ctx); err != nil {
		return errors.Join(err, client.end())
	}
	held, err := m.GoOver(ctx, 0)
	r.All += time.Since(began).Seconds()
	r.Held = append(r.Held, held.Seconds())
	if err := errors.Join(err, client.end()); err != nil {
		return err
	}
	return client.isIn(ctx, m.To)
}

func dataIn(ctx context.Context, d driver.Driver, a driver.Account) (driver.Data, error) {
	access, err := d.Access(a, driver.Access{}, time.Now())
	if err != nil {
		return nil, err
	}
	return d.(driver.DataAccess).Data(ctx, a, access)
}

// client writes a hundred times a second, until it may no longer, or is to end.
type client struct {
	data  driver.Data
	stop  context.CancelFunc
	ended chan struct{}
	done  int // the last write that was acknowledged
}

const counted = "configmaps/default/counted"

func beginWriting(ctx context.Context, d driver.Driver, a driver.Account) (*client, error) {
	c := &client{ended: make(chan struct{}), done: math.MinInt}
	var err error
	if c.data, err = dataIn(ctx, d, a); err != nil {
		return nil, err
	}
	ctx, c.stop = context.WithCancel(ctx)
	go func() {
		defer close(c.ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			write := func(yield func(driver.Change, error) bool) {
				yield(driver.Change{Key: counted, Value: []byte(strconv.Itoa(n))}, nil)
			}
			if c.data.Import(ctx, write) != nil {
				return
			}
			c.done = n
		}
	}()
	return c, nil
}

func (c *client) end() error {
	c.stop()
	<-c.ended
	return c.data.Close()
}

// isIn compares what the client wrote last: nothing that was acknowledged is lost.
func (c *client) isIn(ctx context.Context, d driver.Data) error {
	value, err := d.Value(ctx, counted)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(string(value)); c.done >= 0 && (err != nil || n != c.done && n != c.done+1) { // the last one may not have been acknowledged
		return fmt.Errorf("the last write is %q, and %d was acknowledged", value, c.done)
	}
	return nil
}
