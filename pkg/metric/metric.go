// Package metric is how services declare what they measure: so that values are computed when Prometheus asks and nothing is kept for
// them, and so that the page of all metrics is made from the declarations (Catalogue).
package metric

import "github.com/prometheus/client_golang/prometheus"

// AtScrape is a collector of metrics whose values are computed when Prometheus asks.
type AtScrape struct {
	// Gauges, Counters and Histograms are what Values sends.
	Gauges, Counters, Histograms []*prometheus.Desc
	// PerTenant are gauges with a series for each tenant, which Values sends only if the configuration asks for them.
	PerTenant []*prometheus.Desc
	// Values sends what there is. It may be called from several goroutines at once.
	Values func(chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (a AtScrape) Describe(c chan<- *prometheus.Desc) {
	for _, all := range [][]*prometheus.Desc{a.Gauges, a.Counters, a.Histograms, a.PerTenant} {
		for _, d := range all {
			c <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (a AtScrape) Collect(c chan<- prometheus.Metric) { a.Values(c) }

// Gauge is the value of a gauge, with its labels' values in the order in which the description has them.
func Gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// Counter is the value of a counter that somebody else counts.
func Counter(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

// Histogram is one of values as they are at the time of the scrape, not of samples over time: it can fall. The bounds ascend.
func Histogram(d *prometheus.Desc, values, bounds []float64, labels ...string) prometheus.Metric {
	buckets, sum := make(map[float64]uint64, len(bounds)), 0.0
	for _, bound := range bounds {
		buckets[bound] = 0
	}
	for _, v := range values {
		sum += v
		for i := len(bounds) - 1; i >= 0 && v <= bounds[i]; i-- {
			buckets[bounds[i]]++
		}
	}
	return prometheus.MustNewConstHistogram(d, uint64(len(values)), sum, buckets, labels...)
}

// Bool is the value of a gauge that says whether something is so.
func Bool(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
