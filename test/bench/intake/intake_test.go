// Package intake measures intake alone, one replica, on a real API server and NATS: `make bench`.
package intake

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// tenants that are commanded and then looked at again.
const tenants = 1000

var e *env.Env

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		os.Exit(m.Run()) // no benchmark is asked for, so nothing need run for it
	}
	inMemory()
	env.Main(m, func(started *env.Env) { e = started }, env.APIOnly)
}

// inMemory keeps the data of the installation in memory, where there is room and nobody says otherwise by TMPDIR: intake is
// what is measured. Each tenant is some files in NATS' directory, and to create a file takes ext4 without a journal tens of
// times as long for five minutes after others were deleted nearby.
func inMemory() {
	const shm, room = "/dev/shm", 4 << 30
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") == "" && syscall.Statfs(shm, &fs) == nil && int64(fs.Bavail)*fs.Bsize > room {
		_ = os.Setenv("TMPDIR", shm)
	}
}

// BenchmarkIntake commands 1,000 tenants, and then has intake look at all of them again although nothing has changed:
// after a restart, and after a replica more came and went, which starts its watch over.
func BenchmarkIntake(b *testing.B) {
	intake := e.Service(b, name.ServiceIntake, "a")
	awaitPartitions(b, intake, name.Partitions)
	dataStore(b)
	accept(b, applies(b, "warm", 1))
	for b.Loop() {
		commands(b, intake)
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "\n%d unchanged tenants looked at again\tseconds\tCPU s\twrites\t\n", tenants)
		awaitUsage(b)
		if err := intake.Stop(); err != nil {
			b.Fatal(err)
		}
		resync(b, w, "after a restart", intake, func() (turns, cpu float64) {
			intake.Restart(b)
			return 0, 0
		})
		other := e.Service(b, name.ServiceIntake, "b")
		awaitPartitions(b, other, name.Partitions/2)
		resync(b, w, "after another replica left", intake, func() (n, cpu float64) {
			n, cpu = turns(b, intake), usage(b, intake).CPU
			other.Remove(b)
			return n, cpu
		})
		_ = w.Flush()
	}
}

// dataStore makes the one that the tenants are given.
func dataStore(b *testing.B) {
	b.Helper()
	const manifest = `{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"DataStore","metadata":{"name":"default"},"spec":{"driver":"PostgreSQL","endpoints":["db:5432"],
		"basicAuth":{"username":{"content":"YQ=="},"password":{"content":"YQ=="}}}}`
	if err := e.Admin.ApplyRaw(b.Context(), kube.DataStores, "", stack.DefaultDataStore, []byte(manifest), nil); err != nil {
		b.Fatal(err)
	}
}

// awaitUsage waits until the DataStore says who uses it, which it does with some delay.
func awaitUsage(b *testing.B) {
	b.Helper()
	env.Eventually(b, "every tenant to be on the DataStore", func() error {
		o := v1alpha1.DataStore{}
		if err := e.Admin.Get(b.Context(), kube.DataStores, "", stack.DefaultDataStore, &o); err != nil {
			return err
		}
		if n := len(o.Status.UsedBy); n <= tenants {
			return fmt.Errorf("%d tenants", n)
		}
		return nil
	})
}

// awaitPartitions waits until a process holds so many partitions.
func awaitPartitions(b *testing.B, p *env.Process, partitions float64) {
	b.Helper()
	env.Eventually(b, "the partitions to be shared", func() error {
		if n := gauge(b, p, "stoker_partitions_held"); n != partitions {
			return fmt.Errorf("%v partitions", n)
		}
		return nil
	})
}

// commands measures how fast intake accepts, and who takes the CPU for it.
func commands(b *testing.B, intake *env.Process) {
	b.Helper()
	messages := applies(b, "bench", tenants)
	before, children := usage(b, intake), e.Usages()
	busy, idle := env.Machine()
	first, last := accept(b, messages)
	busyAfter, idleAfter := env.Machine()
	after, childrenAfter := usage(b, intake), e.Usages()
	rate := float64(tenants-1) / last.Sub(first).Seconds()

	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%d tenants commanded, data in %s\taccepted/s\tfirst to last s\t\n", tenants, os.TempDir())
	fmt.Fprintf(w, "\t%.0f\t%.2f\t\n", rate, last.Sub(first).Seconds())
	fmt.Fprintf(w, "process\tCPU s\tMB before\tMB after\t\n")
	fmt.Fprintf(w, "intake\t%.2f\t%.1f\t%.1f\t\n", after.CPU-before.CPU, before.MB, after.MB)
	ours := after.CPU - before.CPU
	for _, n := range slices.Sorted(maps.Keys(childrenAfter)) {
		u := childrenAfter[n]
		if strings.HasPrefix(n, "stoker-") {
			continue
		}
		ours += u.CPU - children[n].CPU
		fmt.Fprintf(w, "%s\t%.2f\t%.1f\t%.1f\t\n", n, u.CPU-children[n].CPU, children[n].MB, u.MB)
	}
	fmt.Fprintf(w, "others on this machine\t%.2f\t\t\t\n", busyAfter-busy-ours)
	fmt.Fprintf(w, "left over\t%.2f\t\t\t\n", idleAfter-idle)
	_ = w.Flush()
	b.ReportMetric(rate, "accepted/s")
	b.ReportMetric((after.CPU-before.CPU)/tenants*1000, "intake-cpu-ms/command")
}

func usage(b *testing.B, p *env.Process) env.Usage {
	b.Helper()
	u, err := p.Usage()
	if err != nil {
		b.Fatal(err)
	}
	return u
}

// applies are the commands for so many tenants that aren't there yet.
func applies(b *testing.B, prefix string, n int) []*nats.Msg {
	b.Helper()
	run := time.Now().UnixNano()
	var messages []*nats.Msg
	for i := range n {
		o := env.Tenant(fmt.Sprintf("%s-%d-%d", prefix, run%1e6, i), "v1.36.3")
		key := events.Tenant(o.Namespace, o.Name)
		command := e.Portal.NewEvent(key, fmt.Sprintf("bench-%d-%d", run, i), event.TenantApply, env.JSON(b, o), time.Now())
		messages = append(messages, events.Encode(key.CommandSubject(), command))
	}
	return messages
}

// accept sends commands, all at once, and returns when the first and the last was accepted.
func accept(b *testing.B, messages []*nats.Msg) (first, last time.Time) {
	b.Helper()
	ctx, n := b.Context(), len(messages)
	facts := make(chan *nats.Msg, n+100)
	sub, err := e.Operator.Conn().ChanSubscribe("stoker.fact.*.*.*.intake.*", facts)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := e.Operator.Conn().Flush(); err != nil {
		b.Fatal(err)
	}
	var published []jetstream.PubAckFuture
	for _, m := range messages {
		ack, err := e.Portal.JetStream().PublishMsgAsync(m)
		if err != nil {
			b.Fatal(err)
		}
		published = append(published, ack)
	}
	for _, ack := range published {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			b.Fatal(err)
		}
	}
	timeout := time.After(5 * time.Minute)
	for accepted := 0; accepted < n; {
		select {
		case m := <-facts:
			if !strings.HasSuffix(m.Subject, ".intake."+event.Accepted) {
				b.Fatalf("%s: %s", m.Subject, m.Data)
			}
			last = time.Now()
			if accepted == 0 {
				first = last
			}
			accepted++
		case <-timeout:
			b.Fatalf("%d of %d accepted", accepted, n)
		case <-ctx.Done():
			b.Fatal(ctx.Err())
		}
	}
	return first, last
}

// resync has intake look at every tenant, and measures how long it takes and what it writes: nothing. again does what
// makes it look, and returns how many turns the process had made before and what CPU it had used.
func resync(b *testing.B, w io.Writer, what string, p *env.Process, again func() (turns, cpu float64)) {
	b.Helper()
	before := writes(b)
	started := time.Now()
	from, busy := again()
	env.Eventually(b, "every tenant to be looked at "+what, func() error {
		if n := turns(b, p); n < from+tenants {
			return fmt.Errorf("%v turns", n-from)
		}
		return nil
	})
	took := time.Since(started)
	cpu := usage(b, p).CPU - busy
	written := 0
	for k, n := range writes(b) {
		written += n - before[k]
		if n != before[k] {
			b.Errorf("%s: %d writes to %s", what, n-before[k], k)
		}
	}
	fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%d\t\n", what, took.Seconds(), cpu, written)
	b.ReportMetric(took.Seconds(), strings.ReplaceAll(what, " ", "-")+"-s")
}

var metric = regexp.MustCompile(`(?m)^(\w+)(\{[^}]*\})? ([0-9.e+]+)$`)

// gauge sums a metric of a process, 0 while it doesn't answer.
func gauge(b *testing.B, p *env.Process, metricName string) float64 {
	b.Helper()
	text, err := p.Metrics(b.Context())
	if err != nil {
		return 0
	}
	sum := 0.0
	for _, m := range metric.FindAllStringSubmatch(text, -1) {
		if m[1] == metricName {
			v, _ := strconv.ParseFloat(m[3], 64)
			sum += v
		}
	}
	return sum
}

func turns(b *testing.B, p *env.Process) float64 {
	b.Helper()
	return gauge(b, p, "stoker_step_duration_seconds_count")
}

// writes counts what has ever been written: requests to the API server that write one of Stoker's kinds, and messages in
// the streams of facts and dead letters and in the tenants' buckets.
func writes(b *testing.B) map[string]int {
	b.Helper()
	counts := map[string]int{}
	out := e.Kubectl(b, e.Local.Kubeconfig("admin"), "get", "--raw", "/metrics")
	for _, m := range metric.FindAllStringSubmatch(out, -1) {
		if m[1] != "apiserver_request_total" || !strings.Contains(m[2], `group="kamaji.clastix.io"`) {
			continue
		}
		for _, verb := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"} {
			if strings.Contains(m[2], `verb="`+verb+`"`) {
				n, _ := strconv.ParseFloat(m[3], 64)
				counts["the API server"] += int(n)
			}
		}
	}
	if counts["the API server"] == 0 {
		b.Fatal("the API server counts no writes: is its metric's name another?")
	}
	list := e.Operator.JetStream().ListStreams(b.Context())
	for info := range list.Info() {
		if info.Config.Name != "KV_"+events.BucketLeases {
			counts["NATS"] += int(info.State.LastSeq)
		}
	}
	if err := list.Err(); err != nil {
		b.Fatal(err)
	}
	return counts
}
