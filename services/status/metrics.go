package status

// What is measured, and which tenants this replica counts: those of its partitions.

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// metrics counts tenants by phase at the time of a scrape; no series is ever kept per tenant.
type metrics struct {
	timeToReady prometheus.Histogram
	tenants     *prometheus.Desc

	mu     sync.Mutex
	phases map[events.Key]string
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		timeToReady: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "stoker_time_to_ready_seconds", Help: "From the acceptance of a generation to Ready.",
			Buckets: []float64{.5, 1, 2, 3, 5, 10, 20, 45, 90, 180, 600},
		}),
		tenants: prometheus.NewDesc("stoker_tenants", "Tenants of the partitions this replica holds.", []string{"phase"}, nil),
		phases:  map[events.Key]string{},
	}
	if r != nil {
		prometheus.WrapRegistererWith(prometheus.Labels{"service": name.ServiceStatus}, r).MustRegister(m.timeToReady, m)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) { c <- m.tenants }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	counts := map[string]int{}
	m.mu.Lock()
	for _, phase := range m.phases {
		counts[phase]++
	}
	m.mu.Unlock()
	for phase, n := range counts {
		c <- prometheus.MustNewConstMetric(m.tenants, prometheus.GaugeValue, float64(n), phase)
	}
}

// note counts a tenant under its phase.
func (m *metrics) note(key events.Key, phase string) {
	m.mu.Lock()
	m.phases[key] = phase
	m.mu.Unlock()
}

// forget counts a tenant no more.
func (m *metrics) forget(key events.Key) {
	m.mu.Lock()
	delete(m.phases, key)
	m.mu.Unlock()
}

// keep forgets the tenants of partitions other than these.
func (m *metrics) keep(partitions []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.phases, func(key events.Key, _ string) bool { return !slices.Contains(partitions, key.Partition()) })
}
