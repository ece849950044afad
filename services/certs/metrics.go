// What is measured of certificates: how long they last, of those that this replica's tenants have.

package certs

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

// expiries are the ends of all certificates of the tenants of this replica's partitions, as their states have them. It is safe for
// concurrent use.
type expiries struct {
	now       func() time.Time
	perTenant bool // each tenant has series
	// within is how long before its end a certificate counts as expiring.
	within time.Duration

	mu      sync.Mutex
	tenants map[events.Key][]expiry
}

// expiry is when a certificate ends.
type expiry struct {
	at       time.Time
	strategy string
}

// Values of the label strategy: whether it is in a Secret of its own or in a kubeconfig.
const strategyX509, strategyKubeconfig = "x509", "kubeconfig"

// Values of the label status. Expiring is what Kamaji calls so: it ends within the deadline, a day where none is said.
const (
	statusValid, statusExpiring, statusInvalid = "valid", "expiring", "invalid"
	expiringWithin                             = 24 * time.Hour
)

const day = 24 * time.Hour

// remainingBounds are those of the histogram: certificates live a year and are renewed when a third of it is left.
var remainingBounds = seconds(0, day, 7*day, 30*day, 90*day, 120*day, 180*day, 365*day, 3650*day)

func seconds(durations ...time.Duration) (all []float64) {
	for _, d := range durations {
		all = append(all, d.Seconds())
	}
	return all
}

func newExpiries(now func() time.Time, perTenant bool) *expiries {
	return &expiries{now: now, perTenant: perTenant, within: expiringWithin, tenants: map[events.Key][]expiry{}}
}

// note takes down a tenant's certificates.
func (x *expiries) note(key events.Key, own *state.Certs) {
	all := make([]expiry, 0, len(own.Secrets)+len(own.Generated))
	for component, secret := range own.Secrets {
		strategy := strategyX509
		if strings.HasSuffix(component, "-"+strategyKubeconfig) {
			strategy = strategyKubeconfig
		}
		if !secret.NotAfter.IsZero() { // as of keys alone
			all = append(all, expiry{secret.NotAfter, strategy})
		}
	}
	for _, g := range own.Generated {
		if !g.NotAfter.IsZero() {
			all = append(all, expiry{g.NotAfter, strategyKubeconfig})
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tenants[key] = all
}

// forget drops a tenant that is no more.
func (x *expiries) forget(key events.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.tenants, key)
}

// keep forgets the tenants of partitions other than these.
func (x *expiries) keep(partitions []int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.tenants, func(key events.Key, _ []expiry) bool { return !slices.Contains(partitions, key.Partition()) })
}

// DescribeMetrics registers the metrics that certs has beside those of every service, without a service.
func DescribeMetrics(own, kamaji prometheus.Registerer) {
	newExpiries(time.Now, true).register(own, kamaji)
}

// held is how many certificates are of a strategy and a status.
type held struct{ strategy, status string }

// heldAt counts certificates as they are at a time.
func heldAt(all []expiry, within time.Duration, now time.Time) map[held]int {
	counts := map[held]int{}
	for _, e := range all {
		status := statusValid
		switch left := e.at.Sub(now); {
		case left <= 0:
			status = statusInvalid
		case left <= within:
			status = statusExpiring
		}
		counts[held{e.strategy, status}]++
	}
	return counts
}

// register has the certificates shown at each scrape.
func (x *expiries) register(own, kamaji prometheus.Registerer) {
	count := prometheus.NewDesc("stoker_certificates",
		"Certificates of the tenants of the partitions this replica holds; status is valid, expiring (within a day, or --certificate-expiration-deadline) or invalid (expired).",
		[]string{"strategy", "status"}, nil)
	remaining := prometheus.NewDesc("stoker_certificate_remaining_seconds", "How long certificates last from now.", []string{"strategy"}, nil)
	soonest := prometheus.NewDesc("stoker_certificate_soonest_expiry_timestamp_seconds", "When the first of all certificates expires.", nil, nil)
	ofTenant := prometheus.NewDesc("stoker_tenant_certificate_expiry_timestamp_seconds", "When the first certificate of a tenant expires.",
		[]string{"tcp_namespace", "tcp_name"}, nil)
	current := prometheus.NewDesc("kamaji_certificates_current", "Certificates of a tenant.",
		[]string{"tcp_namespace", "tcp_name", "status", "strategy"}, nil)
	own.MustRegister(metric.AtScrape{
		Gauges: []*prometheus.Desc{count, soonest}, Histograms: []*prometheus.Desc{remaining}, PerTenant: []*prometheus.Desc{ofTenant},
		Values: func(c chan<- prometheus.Metric) {
			tenants := x.all()
			x.showTenants(tenants, func(key events.Key, all []expiry) {
				c <- metric.Gauge(ofTenant, float64(first(all).Unix()), key.Namespace, key.Name)
			})
			all := slices.Concat(slices.Collect(maps.Values(tenants))...)
			x.showAll(c, all, count, remaining)
			if len(all) > 0 {
				c <- metric.Gauge(soonest, float64(first(all).Unix()))
			}
		},
	})
	kamaji.MustRegister(metric.AtScrape{PerTenant: []*prometheus.Desc{current}, Values: func(c chan<- prometheus.Metric) {
		now := x.now()
		x.showTenants(x.all(), func(key events.Key, all []expiry) {
			for h, n := range heldAt(all, x.within, now) {
				c <- metric.Gauge(current, float64(n), key.Namespace, key.Name, h.status, h.strategy)
			}
		})
	}})
}

// all is what there is now. What is sent of it is taken by others, who are not waited for with the lock held.
func (x *expiries) all() map[events.Key][]expiry {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.tenants)
}

// showTenants calls show for each tenant with certificates, if tenants have series.
func (x *expiries) showTenants(tenants map[events.Key][]expiry, show func(events.Key, []expiry)) {
	for key, all := range tenants {
		if x.perTenant && len(all) > 0 {
			show(key, all)
		}
	}
}

// showAll sends how many certificates there are and how long they last.
func (x *expiries) showAll(c chan<- prometheus.Metric, all []expiry, count, remaining *prometheus.Desc) {
	now := x.now()
	counts := heldAt(all, x.within, now)
	for _, strategy := range []string{strategyX509, strategyKubeconfig} {
		for _, status := range []string{statusValid, statusExpiring, statusInvalid} {
			c <- metric.Gauge(count, float64(counts[held{strategy, status}]), strategy, status)
		}
		left := make([]float64, 0, len(all))
		for _, e := range all {
			if e.strategy == strategy {
				left = append(left, e.at.Sub(now).Seconds())
			}
		}
		c <- metric.Histogram(remaining, left, remainingBounds, strategy)
	}
}

// first is the end of the certificate that ends first, of at least one.
func first(all []expiry) time.Time {
	return slices.MinFunc(all, func(a, b expiry) int { return a.at.Compare(b.at) }).at
}
