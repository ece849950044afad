package workload

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/metric"
)

// DescribeMetrics registers the metrics that workload has beside those of every service, without a service.
func DescribeMetrics(own, _ prometheus.Registerer) {
	own.MustRegister((*slots)(nil).metrics(), (*activator)(nil).metrics())
}

// metrics shows how many connections the activator has.
func (a *activator) metrics() prometheus.Collector {
	connections := prometheus.NewDesc("stoker_workload_activator_connections",
		"Connections to tenants with the annotation stoker.dev/wake-on: held until a pod is ready, or led to one since.", []string{"state"}, nil)
	return metric.AtScrape{Gauges: []*prometheus.Desc{connections}, Values: func(c chan<- prometheus.Metric) {
		held, led := a.count()
		c <- metric.Gauge(connections, float64(held), "held")
		c <- metric.Gauge(connections, float64(led), "led")
	}}
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
