package bench

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// kills is how many replicas BenchmarkTakeover kills.
const kills = 20

// BenchmarkTakeover kills the one of three replicas of certs that holds a tenant, with an event about it in flight: seconds until another
// one has done what the event asks for. Ten are promised (docs/reliability.md).
func BenchmarkTakeover(b *testing.B) {
	procs := e.Services(b)
	replicas := []*env.Process{procs[name.ServiceCerts]}
	for _, r := range []string{"b", "c"} {
		p := e.Service(b, name.ServiceCerts, r)
		b.Cleanup(func() { p.Remove(b) })
		replicas = append(replicas, p)
	}
	for b.Loop() {
		var seconds []float64
		for i := range kills {
			seconds = append(seconds, takeover(b, replicas, events.Tenant("default", fmt.Sprintf("taken-%d", i))))
		}
		slices.Sort(seconds)
		b.ReportMetric(seconds[len(seconds)/2], "s-median")
		b.ReportMetric(seconds[len(seconds)-1], "s-max")
	}
}

// takeover kills the holder of a tenant that is just made, and returns the seconds from the kill until another replica has its
// certificates issued.
func takeover(b *testing.B, replicas []*env.Process, key events.Key) float64 {
	b.Helper()
	var holder *env.Process
	env.Eventually(b, "the replicas to share, and one to hold "+key.String(), func() error {
		held := 0
		for _, p := range replicas {
			held += len(p.Held(b))
			if p.Holds(b, key) {
				holder = p
			}
		}
		if held != name.Partitions || holder == nil {
			return fmt.Errorf("%d partitions are held, of %d", held, name.Partitions)
		}
		return nil
	})
	// What is delivered to a stopped process it has not begun, and can't end.
	holder.Signal(syscall.SIGSTOP)
	o, asleep := env.Tenant(key.Name, "v1.36.3"), int32(0)
	o.Spec.ControlPlane.Deployment.Replicas = &asleep
	e.Apply(b, o)
	env.Eventually(b, "an event in flight at the holder", func() error {
		c, err := e.Operator.JetStream().Consumer(b.Context(), events.StreamFacts, events.Consumer(name.ServiceCerts, key.Partition()))
		if err != nil {
			return err
		}
		if c.CachedInfo().NumAckPending == 0 {
			return fmt.Errorf("nothing is pending")
		}
		return nil
	})
	killed := time.Now()
	holder.Kill()
	var done time.Time
	env.Eventually(b, "another replica to do the work", func() error {
		for _, p := range replicas {
			if at := p.Did(b, key, killed); p != holder && !at.IsZero() {
				done = at
				return nil
			}
		}
		return fmt.Errorf("none has")
	})
	holder.Restart(b)
	e.Delete(b, key)
	e.Gone(b, key)
	return done.Sub(killed).Seconds()
}
