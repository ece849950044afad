package tenantaddons

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

// DescribeMetrics registers the metrics that tenantaddons has beside those of every service, without a service.
func DescribeMetrics(own, _ prometheus.Registerer) { (&svc{metrics: newMetrics()}).register(own) }

// metrics count what the service does in tenants.
type metrics struct {
	installations       *prometheus.CounterVec
	took                prometheus.Histogram
	repaired, abandoned prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		installations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoker_tenantaddons_installations_total", Help: "Installations and upgrades of TenantAddons in tenants, by result: installed or failed.",
		}, []string{"result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "stoker_tenantaddons_installation_duration_seconds", Help: "How long an installation or upgrade of a TenantAddon in a tenant took, hooks included.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 13),
		}),
		repaired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoker_tenantaddons_repaired_objects_total", Help: "Objects of TenantAddons that weren't in a tenant as they must be, and were put right.",
		}),
		abandoned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoker_tenantaddons_abandoned_total", Help: "TenantAddons that couldn't be removed from a tenant in time, and are left there.",
		}),
	}
}

// tried counts an installation.
func (m *metrics) tried(err error, took time.Duration) {
	result := "installed"
	if err != nil {
		result = "failed"
	}
	m.installations.WithLabelValues(result).Inc()
	m.took.Observe(took.Seconds())
}

// register registers the metrics, and has each TenantAddon that this replica rolls out shown at each scrape.
func (s *svc) register(own prometheus.Registerer) {
	for _, result := range []string{"installed", "failed"} {
		s.metrics.installations.WithLabelValues(result)
	}
	own.MustRegister(s.metrics.installations, s.metrics.took, s.metrics.repaired, s.metrics.abandoned)
	addon := []string{"namespace", "addon"}
	tenants := prometheus.NewDesc("stoker_tenantaddons_tenants",
		"Tenants of a TenantAddon that this replica rolls out, by state: selected, current, ready, failed, removing.", append(addon, "state"), nil)
	stopped := prometheus.NewDesc("stoker_tenantaddons_rollout_stopped", "Whether the rollout of a TenantAddon is stopped by failures.", addon, nil)
	valid := prometheus.NewDesc("stoker_tenantaddons_valid", "Whether the spec of a TenantAddon can be used and its source was fetched.", addon, nil)
	own.MustRegister(metric.AtScrape{Gauges: []*prometheus.Desc{tenants, stopped, valid}, Values: func(c chan<- prometheus.Metric) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for of, is := range s.told {
			if !slices.Contains(s.held, events.TenantAddon(of.Namespace, of.Name).Partition()) {
				continue
			}
			for state, n := range map[string]int32{
				"selected": is.Tenants.Selected, "current": is.Tenants.Current, "ready": is.Tenants.Ready, "failed": is.Tenants.Failed, "removing": is.Tenants.Removing,
			} {
				c <- metric.Gauge(tenants, float64(n), of.Namespace, of.Name, state)
			}
			rolled := meta.FindStatusCondition(is.Conditions, tenantaddon.ConditionRolledOut)
			c <- metric.Gauge(stopped, truth(rolled != nil && rolled.Reason == tenantaddon.ReasonStopped), of.Namespace, of.Name)
			c <- metric.Gauge(valid, truth(meta.IsStatusConditionTrue(is.Conditions, tenantaddon.ConditionValid)), of.Namespace, of.Name)
		}
	}})
}

// truth is 1 for what is true.
func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
