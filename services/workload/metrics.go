package workload

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/services/workload/internal/activator"
)

// DescribeMetrics registers the metrics that workload has beside those of every service, without a service.
func DescribeMetrics(own, _ prometheus.Registerer) {
	own.MustRegister((*slots)(nil).metrics(), (*activator.Activator)(nil).Metrics())
}

// metrics shows how many rollouts go on and wait.
func (s *slots) metrics() prometheus.Collector {
	held := prometheus.NewDesc("stoker_workload_rollouts", "Tenants whose pods are being rolled out.", nil, nil)
	waiting := prometheus.NewDesc("stoker_workload_rollouts_waiting", "Tenants that wait for a rollout slot.", nil, nil)
	return metric.AtScrape{Gauges: []*prometheus.Desc{held, waiting}, Values: func(c chan<- prometheus.Metric) {
		going, queued := s.count()
		c <- metric.Gauge(held, float64(going))
		c <- metric.Gauge(waiting, float64(queued))
	}}
}
