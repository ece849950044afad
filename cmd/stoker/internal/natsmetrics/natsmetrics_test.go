package natsmetrics

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// scrape asks a collector, and returns what it shows by name.
func scrape(t *testing.T, monitor string) (all map[string]*dto.MetricFamily, complaints []error) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector{monitor: monitor, say: func(err error) { complaints = append(complaints, err) }})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all, complaints
}

// rowOfMetric is a line of the page's table.
var rowOfMetric = regexp.MustCompile("(?m)^\\| `(stoker_nats_server_\\w+)` \\| (gauge|counter) \\| ([^|]*) \\| ([^|]+) \\|$")

func TestARealServer(t *testing.T) {
	s, err := natsserver.Start(t.Context(), t.TempDir(), fmt.Sprintf("127.0.71.%d:%d", os.Getpid()%250+1, natsserver.DefaultPort), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	bus, err := events.Connect(events.Config{
		URL: s.URL(), User: name.ServiceIntake, SeedFile: s.SeedFile(name.ServiceIntake), Replica: "a", StreamReplicas: 1,
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	if err := bus.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"one", "two"} {
		bucket := jetstream.KeyValueConfig{Bucket: events.Tenant("default", n).Bucket()}
		if _, err := bus.JetStream().CreateKeyValue(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
	}
	served, complaints := scrape(t, s.MonitorURL())
	if err := errors.Join(complaints...); err != nil {
		t.Fatal(err)
	}
	t.Run("it is what the page says", func(t *testing.T) {
		page, err := os.ReadFile("../../../../docs/monitoring.md")
		if err != nil {
			t.Fatal(err)
		}
		rows := rowOfMetric.FindAllStringSubmatch(string(page), -1)
		for _, row := range rows {
			f := served[row[1]]
			if f == nil {
				t.Errorf("%s is on the page and not served", row[1])
				continue
			}
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, "`"+l.GetName()+"`")
			}
			for _, l := range labels {
				if !strings.Contains(row[3], l) || strings.Count(row[3], "`") != 2*len(labels) {
					t.Errorf("%s has the labels %v, by the page %s", row[1], labels, row[3])
				}
			}
			if f.GetHelp() != row[4] || strings.ToLower(f.GetType().String()) != row[2] {
				t.Errorf("%s is a %s, %q; by the page a %s, %q", row[1], f.GetType(), f.GetHelp(), row[2], row[4])
			}
		}
		if len(rows) != len(served) {
			t.Errorf("%d metrics are on the page, %d are served", len(rows), len(served))
		}
	})
	t.Run("each stream is shown, and what waits for each service", func(t *testing.T) {
		shown := map[string]bool{}
		for _, n := range []string{"stream_messages", "consumer_unprocessed"} {
			for _, m := range served["stoker_nats_server_"+n].GetMetric() {
				for _, l := range m.GetLabel() {
					shown[l.GetValue()] = true
				}
			}
		}
		for _, want := range append(name.Services(), events.StreamIntake, events.StreamFacts, events.StreamStatus, events.StreamDead) {
			if !shown[want] {
				t.Errorf("%s is not shown: %v", want, shown)
			}
		}
	})
	t.Run("tenants' buckets are counted, and not shown by name", func(t *testing.T) {
		if n := served["stoker_nats_server_tenant_buckets"].GetMetric()[0].GetGauge().GetValue(); n != 2 {
			t.Errorf("%v buckets, want 2", n)
		}
		for n, f := range served {
			if strings.Contains(f.String(), "tenant_default") {
				t.Errorf("%s has a series for a tenant", n)
			}
		}
	})
	t.Run("a server that is gone is down", func(t *testing.T) {
		s.Stop()
		served, complaints := scrape(t, s.MonitorURL())
		if len(served) != 1 || served["stoker_nats_server_up"].GetMetric()[0].GetGauge().GetValue() != 0 || len(complaints) == 0 {
			t.Errorf("%v, %v", served, complaints)
		}
	})
}
