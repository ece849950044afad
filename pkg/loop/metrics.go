package loop

import (
	"github.com/prometheus/client_golang/prometheus"
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
}

// newMetrics registers the metrics with r, unless that is nil; a service in a process registers them once.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		turns: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stoker_step_duration_seconds", Help: "Time of one turn of the loop for one tenant.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10},
		}, []string{"result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoker_events_total", Help: "Events handled.",
		}, []string{"type", "result"}),
		redeliveries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoker_redeliveries_total", Help: "Events the server delivered again.",
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoker_state_conflicts_total", Help: "State writes that lost by revision.",
		}),
		dead: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoker_dead_letters_total", Help: "Events given up.",
		}),
		partitions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stoker_partitions_held", Help: "Partitions this replica works on.",
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stoker_events_pending", Help: "Events received and not yet acknowledged.",
		}),
		drifting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stoker_tenants_drifting", Help: "Tenants of which somebody else changes objects again and again.",
		}),
	}
	if r != nil {
		r.MustRegister(m.turns, m.events, m.redeliveries, m.conflicts, m.dead, m.partitions, m.pending, m.drifting)
	}
	return m
}
