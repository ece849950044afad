package mirror

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/metric"
)

// Metrics of mirrors, for [Config.Metrics]. A nil one measures nothing; it is safe for concurrent use.
type Metrics struct {
	writes, errors     *prometheus.CounterVec
	up, contact, state *prometheus.Desc

	mu       sync.Mutex
	expected int
	running  map[*mirror]struct{}
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("stoker_mirror_"+name, help, labels, nil)
	}
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoker_mirror_writes_total", Help: "Changes that a mirror made: status, secret, generations, finalizer and message in the remote " +
				"cluster, spec, namespace and deletion in the local one.",
		}, []string{"kind", "what"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoker_mirror_errors_total", Help: "Looks at mirrored objects that failed and were repeated, but for outages.",
		}, []string{"kind"}),
		up:      desc("up", "Whether the API of a side answers: local, remote.", "side"),
		contact: desc("contact_timestamp_seconds", "When the API of a side answered last, as seconds since 1970.", "side"),
		state:   desc("objects", "Mirrored objects that this replica works on, by state: synced, paused, waiting, foreign, replaced, missing, held, noNamespace, failed.", "kind", "state"),
		running: map[*mirror]struct{}{},
	}
	r.MustRegister(m.writes, m.errors, metric.AtScrape{Gauges: []*prometheus.Desc{m.up, m.contact, m.state}, Values: m.values})
	return m
}

// Expect has the remote API counted as away while no mirror runs, as when there is no kubeconfig that can be used, until stop is called.
func (m *Metrics) Expect() (stop func()) {
	add := func(n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.expected += n
	}
	add(1)
	return func() { add(-1) }
}

func (m *Metrics) wrote(kind, what string) {
	if m != nil {
		m.writes.WithLabelValues(kind, what).Inc()
	}
}

func (m *Metrics) failed(kind string) {
	if m != nil {
		m.errors.WithLabelValues(kind).Inc()
	}
}

// serve has a mirror among what is measured until stop is called.
func (m *Metrics) serve(of *mirror) (stop func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[of] = struct{}{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.running, of)
	}
}

// values sends what there is of the one mirror that runs.
func (m *Metrics) values(c chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for of := range m.running {
		for _, s := range []side{local, remote} {
			is := of.sideState(s)
			c <- metric.Gauge(m.up, metric.Bool(!is.away && !is.contact.IsZero()), s.String())
			if !is.contact.IsZero() {
				c <- metric.Gauge(m.contact, float64(is.contact.Unix()), s.String())
			}
		}
		for kind, k := range of.Kinds {
			n := of.index.count(kind)
			for _, s := range states {
				c <- metric.Gauge(m.state, float64(n[s]), k.Resource.Kind, string(s))
			}
		}
		return
	}
	if m.expected > 0 {
		c <- metric.Gauge(m.up, metric.Bool(false), remote.String())
	}
}
