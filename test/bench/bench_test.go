// Package bench measures what the design's budgets are about, on real servers: `make bench`.
package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		os.Exit(m.Run()) // no benchmark is asked for, so nothing need run for it
	}
	env.Main(m, func(started *env.Env) { e = started })
}

// usage of every service's process.
type usage map[string]env.Usage

func measure(b *testing.B, procs map[string]*env.Process) usage {
	b.Helper()
	u := usage{}
	for n, p := range procs {
		got, err := p.Usage()
		if err != nil {
			b.Fatal(err)
		}
		u[n] = got
	}
	return u
}

// BenchmarkProvision creates 1, 5 and 10 tenants at once: seconds from the command published to each milestone, CPU and
// memory of each service meanwhile.
func BenchmarkProvision(b *testing.B) {
	procs := e.Services(b)
	warm(b)
	for _, n := range []int{1, 5, 10} {
		b.Run(fmt.Sprintf("tenants=%d", n), func(b *testing.B) {
			for b.Loop() {
				provision(b, procs, n)
			}
		})
	}
}

// warm provisions and deletes one tenant, so that nothing is measured that happens once.
func warm(b *testing.B) {
	b.Helper()
	key := events.Tenant("default", "warm")
	e.Apply(b, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(b, key)
	e.Delete(b, key)
	e.Gone(b, key)
}

var milestones = []struct{ name, subject string }{
	{"exposed", "workload." + event.Exposed},
	{"available", "workload." + event.Available},
	{"Ready", "status." + event.Changed},
}

func provision(b *testing.B, procs map[string]*env.Process, n int) {
	b.Helper()
	sub, err := e.Operator.Conn().SubscribeSync("stoker.fact.>")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	before := measure(b, procs)
	published := map[string]time.Time{}
	for i := range n {
		o := env.Tenant(fmt.Sprintf("bench-%d-%d", n, i), "v1.36.3")
		published[o.Name] = time.Now()
		e.Apply(b, o)
	}
	seconds := map[string][]float64{}
	ready := 0
	for ready < n {
		m, err := sub.NextMsg(5 * time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		milestone, tenant := reached(b, m)
		if milestone == "" {
			continue
		}
		seconds[milestone] = append(seconds[milestone], at.Sub(published[tenant]).Seconds())
		if milestone == "Ready" {
			ready++
		}
	}
	after := measure(b, procs)

	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%d tenants at once\tmedian s\tmax s\t\n", n)
	for _, m := range milestones {
		s := seconds[m.name]
		slices.Sort(s)
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t\n", m.name, s[len(s)/2], s[len(s)-1])
		b.ReportMetric(s[len(s)-1], m.name+"-max-s")
	}
	fmt.Fprintf(w, "service\tCPU s\tMB before\tMB after\t\n")
	var cpu, memory float64
	for _, s := range name.Services() {
		c := after[s].CPU - before[s].CPU
		cpu += c
		memory += after[s].MB - before[s].MB
		fmt.Fprintf(w, "%s\t%.2f\t%.1f\t%.1f\t\n", s, c, before[s].MB, after[s].MB)
	}
	fmt.Fprintf(w, "all eight, each tenant\t%.3f\t\t%+.2f\t\n", cpu/float64(n), memory/float64(n))
	b.ReportMetric(cpu/float64(n), "cpu-s/tenant")

	rest := measure(b, procs)
	const resting = 20 * time.Second
	sleep(b.Context(), resting)
	idle := measure(b, procs)
	cpu = 0
	for _, s := range name.Services() {
		cpu += idle[s].CPU - rest[s].CPU
	}
	fmt.Fprintf(w, "at rest, all eight\t%.4f core\t\t\t\n", cpu/resting.Seconds())
	b.ReportMetric(cpu/resting.Seconds(), "core-at-rest")

	started := time.Now()
	for i := range n {
		e.Delete(b, events.Tenant("default", fmt.Sprintf("bench-%d-%d", n, i)))
	}
	for i := range n {
		e.Gone(b, events.Tenant("default", fmt.Sprintf("bench-%d-%d", n, i)))
	}
	fmt.Fprintf(w, "deleted, all of them\t%.1f s\t\t\t\n", time.Since(started).Seconds())
	_ = w.Flush()
}

// reached tells which milestone a fact is, and whose.
func reached(b *testing.B, m *nats.Msg) (milestone, tenant string) {
	b.Helper()
	var about struct {
		event.About
		Ready bool `json:"ready"`
	}
	if err := json.Unmarshal(m.Data, &about); err != nil {
		b.Fatal(err)
	}
	for _, x := range milestones {
		if strings.HasSuffix(m.Subject, "."+x.subject) && (x.name != "Ready" || about.Ready) {
			return x.name, about.Name
		}
	}
	return "", ""
}

// sleep lets time pass: what is measured is what happens when nothing does.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
