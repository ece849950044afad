package capi

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/metric"
)

// DescribeMetrics registers the metrics that capi has beside those of every service, without a service.
func DescribeMetrics(own, _ prometheus.Registerer) { (*externals)(nil).register(own) }

// register has the external clusters shown at each scrape.
func (x *externals) register(own prometheus.Registerer) {
	desc := func(n, help string) *prometheus.Desc {
		return prometheus.NewDesc("stoker_capi_external_cluster_"+n, help, []string{"secret", "key"}, nil)
	}
	up := desc("up", "Whether the external cluster of this kubeconfig answers this replica.")
	controlPlanes := desc("control_planes", "Control planes of this replica whose tenants are in the external cluster of this kubeconfig.")
	own.MustRegister(metric.AtScrape{Gauges: []*prometheus.Desc{up, controlPlanes}, Values: func(c chan<- prometheus.Metric) {
		x.mu.Lock()
		defer x.mu.Unlock()
		for of, e := range x.all {
			secret := of.namespace + "/" + of.secret
			answers := 0.0
			if e.answers() {
				answers = 1
			}
			c <- metric.Gauge(up, answers, secret, of.key)
			c <- metric.Gauge(controlPlanes, float64(len(e.members)), secret, of.key)
		}
	}})
}

// answers reports whether a cluster answers, in each namespace that is used.
func (e *external) answers() bool {
	if e.conn == nil || len(e.conn.rooms) == 0 {
		return false
	}
	for _, r := range e.conn.rooms {
		if r.up == nil || r.up.Err() != nil {
			return false
		}
	}
	return true
}
