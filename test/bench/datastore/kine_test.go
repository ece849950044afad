package datastore

import (
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// limits of kine's connections: those that are idle, all, and how long one stays that nobody uses.
var limits = [][]string{
	{"--datastore-max-idle-connections=20", "--datastore-max-open-connections=0", "--datastore-connection-max-idle-time=2m"}, // kine's own
	{"--datastore-max-idle-connections=20", "--datastore-max-open-connections=20", "--datastore-connection-max-idle-time=30s"},
	{"--datastore-max-idle-connections=10", "--datastore-max-open-connections=10", "--datastore-connection-max-idle-time=30s"},
}

// BenchmarkConnections measures what limits of kine's connections cost a tenant on an SQL server: 20 and 100 clients that
// create at once, and how many connections are left 40 seconds later.
func BenchmarkConnections(b *testing.B) {
	e.Services(b)
	for b.Loop() {
		for _, driver := range []string{local.DriverPostgres, local.DriverMySQL} {
			t := newTable("kine on "+driver+": idle, open, idle time", "after the start", "20 at once: created/s", "99 % ms", "most", "closed",
				"100 at once: created/s", "99 % ms", "most", "closed", "waited ms each", "at rest")
			open(b, driver)
			o, key := tenant("limits-"+driver, driver)
			last := ""
			for _, flags := range limits {
				o.Spec.ControlPlane.Deployment.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{Kine: flags}
				e.Apply(b, o)
				s := serverOf(b, key, last)
				starting := s.connections(b)
				e.Ready(b, key)
				last = podOf(b, key).Name
				const some = 1000
				sampling := s.sample(b)
				few, fewTook := s.create(b, "few", some, writers)
				ofFew := sampling.stop()
				sampling = s.sample(b)
				many, manyTook := s.create(b, "many", some, 5*writers)
				ofMany := sampling.stop()
				s.clear(b)
				pause(b, 40*time.Second)
				var values []string
				for _, f := range flags {
					_, v, _ := strings.Cut(f, "=")
					values = append(values, v)
				}
				t.row(strings.Join(values, ", "), starting.open, some/fewTook.Seconds(), at(few, 0.99), ofFew.open, ofFew.closed,
					some/manyTook.Seconds(), at(many, 0.99), ofMany.open, ofMany.closed, ofMany.waited/some, s.connections(b).open)
			}
			t.print(b)
			e.Delete(b, key)
			e.Gone(b, key)
		}
	}
}

// pause lets time pass, in which nobody uses the tenant.
func pause(b *testing.B, d time.Duration) {
	b.Helper()
	select {
	case <-b.Context().Done():
	case <-time.After(d):
	}
}
