package datastore

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// How many tenants get an account one after the other, and at once.
const (
	oneByOne = 10
	atOnce   = 50
)

// BenchmarkAccount has the datastore service provision and drop what tenants have in a database: one alone, and 50 at
// once. No other service runs but intake, which tells of the tenants; the end of their pods, for which datastore waits
// before it drops anything, is told by the benchmark.
func BenchmarkAccount(b *testing.B) {
	e.NoServices(b)
	e.Service(b, name.ServiceIntake, "a")
	service := e.Service(b, name.ServiceDatastore, "a")
	workload, err := e.Bus(name.ServiceWorkload)
	check(b, err)
	defer workload.Close()
	for b.Loop() {
		columns := []string{"one ms", "max", "50 at once ms", "max", "first to last ms", "CPU ms each"}
		made := newTable("accepted to provisioned", columns...)
		dropped := newTable("pods gone to dropped", columns...)
		var all []events.Key
		for _, driver := range drivers {
			open(b, driver)
			var one, many [2]spent
			for i := range 1 + oneByOne {
				keys := keysOf(driver, fmt.Sprint("one-", i), 1)
				r := round(b, workload, service, driver, keys)
				all = append(all, keys...)
				for j := range r {
					if i > 0 { // with the first one there is more to do: connections, tables of our own
						one[j].each = append(one[j].each, r[j].each...)
					}
				}
			}
			keys := keysOf(driver, "many", atOnce)
			many = round(b, workload, service, driver, keys)
			all = append(all, keys...)
			for j, t := range []table{made, dropped} {
				t.row(driver, median(one[j].each), at(one[j].each, 1), median(many[j].each), at(many[j].each, 1), many[j].all, 1000*many[j].cpu/atOnce)
			}
			b.ReportMetric(float64(median(one[0].each).Milliseconds()), driver+"-provision-ms")
			b.ReportMetric(float64(median(one[1].each).Milliseconds()), driver+"-drop-ms")
		}
		made.print(b)
		dropped.print(b)
		e.Services(b) // they end what was begun
		for _, key := range all {
			e.Gone(b, key)
		}
	}
}

func keysOf(driver, what string, n int) (keys []events.Key) {
	for i := range n {
		keys = append(keys, events.Tenant("default", fmt.Sprintf("%s-%s-%d", driver, what, i)))
	}
	return keys
}

// spent is what something took: each tenant, all of them, and the service's CPU seconds.
type spent struct {
	each []time.Duration
	all  time.Duration
	cpu  float64
}

// round provisions tenants, all at once, and then drops them.
func round(b *testing.B, workload *events.Bus, service *env.Process, driver string, keys []events.Key) (r [2]spent) {
	b.Helper()
	facts := make(chan *nats.Msg, 100*len(keys))
	sub, err := e.Operator.Conn().ChanSubscribe("stoker.fact.>", facts)
	check(b, err)
	defer func() { _ = sub.Unsubscribe() }()
	check(b, e.Operator.Conn().Flush())

	before := cpu(b, service)
	for _, key := range keys {
		o, _ := tenant(key.Name, driver)
		e.Apply(b, o)
	}
	seen := await(b, facts, len(keys), "intake."+event.Accepted, "datastore."+event.Provisioned)
	accepted, provisioned := seen["intake."+event.Accepted], seen["datastore."+event.Provisioned]
	r[0] = between(accepted, provisioned)
	r[0].cpu = cpu(b, service) - before

	for _, key := range keys {
		e.Delete(b, key)
	}
	await(b, facts, len(keys), "intake."+event.Deleting)
	before = cpu(b, service)
	gone := map[string]fact{}
	for _, key := range keys {
		about := accepted[key.Name].about
		gone[key.Name] = fact{time.Now(), about}
		_, err := workload.Publish(b.Context(), key.FactSubject(name.ServiceWorkload, event.Removed), workload.NewEvent(key,
			events.ID("bench", about.UID), event.FactType(name.ServiceWorkload, event.Removed), event.Removals{About: about, Removed: map[string]int{}}, time.Now()))
		check(b, err)
	}
	removed := await(b, facts, len(keys), "datastore."+event.Removed)["datastore."+event.Removed]
	r[1] = between(gone, removed)
	r[1].cpu = cpu(b, service) - before
	return r
}

// fact is when a fact came, and about whom.
type fact struct {
	at    time.Time
	about event.About
}

// await collects facts until the last kind was told about so many tenants: by kind and tenant.
func await(b *testing.B, facts chan *nats.Msg, n int, kinds ...string) map[string]map[string]fact {
	b.Helper()
	seen := map[string]map[string]fact{}
	for _, k := range kinds {
		seen[k] = map[string]fact{}
	}
	timeout := time.After(3 * time.Minute)
	for last := kinds[len(kinds)-1]; len(seen[last]) < n; {
		select {
		case m := <-facts:
			part := strings.Split(m.Subject, ".")
			if len(part) < 2 {
				continue
			}
			if part[len(part)-1] == event.Failed {
				b.Logf("%s: %s", m.Subject, m.Data)
			}
			of, ok := seen[strings.Join(part[len(part)-2:], ".")]
			if !ok {
				continue
			}
			t := fact{at: time.Now()}
			check(b, json.Unmarshal(m.Data, &t.about))
			if _, again := of[t.about.Name]; !again {
				of[t.about.Name] = t
			}
		case <-timeout:
			b.Fatalf("%s told about %d of %d tenants", last, len(seen[last]), n)
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		}
	}
	return seen
}

// between is the time of each tenant from one fact to another, and from the first of all to the last.
func between(from, to map[string]fact) (s spent) {
	var first, last time.Time
	for n, f := range from {
		s.each = append(s.each, to[n].at.Sub(f.at))
		if first.IsZero() || f.at.Before(first) {
			first = f.at
		}
		if to[n].at.After(last) {
			last = to[n].at
		}
	}
	s.all = last.Sub(first)
	return s
}

func cpu(b *testing.B, p *env.Process) float64 {
	b.Helper()
	u, err := p.Usage()
	check(b, err)
	return u.CPU
}
