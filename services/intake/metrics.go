package intake

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/mirror"
)

// DescribeMetrics registers the metrics that intake has beside those of every service, without a service.
func DescribeMetrics(own, _ prometheus.Registerer) {
	newHTTPTime(own)
	own.MustRegister(new(heldTenants).metric())
	mirror.NewMetrics(own)
}
