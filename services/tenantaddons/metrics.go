package tenantaddons

import "github.com/prometheus/client_golang/prometheus"

// DescribeMetrics registers the metrics that tenantaddons has beside those of every service, without a service.
func DescribeMetrics(_, _ prometheus.Registerer) {}
