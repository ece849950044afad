package loop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/metric"
)

// metrics of a loop.
type metrics struct {
	turns        *prometheus.HistogramVec
	events       *prometheus.CounterVec
	redeliveries prometheus.Counter
	conflicts    prometheus.Counter
	dead         prometheus.Counter
	partitions   prometheus.Gauge
	pending      prometheus.Gauge
	drifting     prometheus.Gauge
	ages         *prometheus.HistogramVec
}

// DescribeMetrics registers the metrics that every loop has, without a loop.
func DescribeMetrics(r prometheus.Registerer) { newMetrics().register(r, nil) }

func newMetrics() *metrics {
	return &metrics{
		turns: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stoker_step_duration_seconds", Help: "Time of one turn of the loop for one object; result is done, retry, unavailable, dead or fenced.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10},
		}, []string{"result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoker_events_total", Help: "Events handled; type is command, or the service and what of a fact, result that of the turn.",
		}, []string{"type", "result"}),
		redeliveries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoker_redeliveries_total", Help: "Events delivered again, because a replica died or handed over.",
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoker_state_conflicts_total", Help: "State writes that lost by revision.",
		}),
		dead: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoker_dead_letters_total", Help: "Events given up.",
		}),
		partitions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stoker_partitions_held", Help: "Partitions this replica works on; over all replicas of a service, 16.",
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stoker_events_pending", Help: "Events received and not yet acknowledged.",
		}),
		drifting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stoker_tenants_drifting", Help: "Tenants of which somebody else changes objects again and again.",
		}),
		ages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stoker_event_age_seconds", Help: "Time from the storing of an event in its stream to the beginning of its first turn.",
			Buckets: []float64{.005, .02, .1, .5, 2, 10, 60, 600},
		}, []string{"stream"}),
	}
}

// register registers the metrics of a loop; a service in a process registers them once.
func (m *metrics) register(r prometheus.Registerer, l *Loop) {
	lease := prometheus.NewDesc("stoker_lease_held", "Whether this replica may work on what it holds: its last sign of life was stored.", nil, nil)
	owed := prometheus.NewDesc("stoker_facts_owed", "Objects of which facts were written with the state and may lack in the stream.", nil, nil)
	r.MustRegister(m.turns, m.events, m.redeliveries, m.conflicts, m.dead, m.partitions, m.pending, m.drifting, m.ages, metric.AtScrape{
		Gauges: []*prometheus.Desc{lease, owed}, Values: func(c chan<- prometheus.Metric) {
			c <- metric.Gauge(lease, metric.Bool(l.lease.valid()))
			c <- metric.Gauge(owed, float64(l.owingObjects()))
		},
	})
}

// noteAges measures how old events are of which a turn begins for the first time.
func (m *metrics) noteAges(batch []*delivery, now time.Time) {
	for _, d := range batch {
		if !d.begun && d.origin.stored != 0 {
			m.ages.WithLabelValues(d.origin.stream).Observe(max(0, now.Sub(time.Unix(0, d.origin.stored)).Seconds()))
		}
		d.begun = true
	}
}
