package status

// What is measured, and which tenants this replica counts: those of its partitions.

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/pkg/version"
)

// metrics is what is measured: durations, and at the time of a scrape how many tenants are as they are.
type metrics struct {
	timeToReady prometheus.Histogram
	timeToStep  *prometheus.HistogramVec
	perTenant   bool // each tenant has series
	now         func() time.Time

	mu      sync.Mutex
	tenants map[events.Key]tenant
}

// tenant is what metrics say of one.
type tenant struct {
	phase string
	ready bool
	// Kamaji's: status is that of status.kubernetesResources.version.
	status, version, driver, address, exposure string
	// notReady is since when it has been neither Ready nor paused, asleep or being deleted; zero while it is one of these.
	notReady time.Time
}

// tenantOf is what metrics say of a tenant whose status is computed. What the API status lacks stays empty.
func tenantOf(t *state.Tenant, api v1alpha1.TenantControlPlaneStatus, s state.Status) tenant {
	m := tenant{
		phase: s.Phase, ready: s.Ready, version: cmp.Or(s.Version, t.Spec.Kubernetes.Version), driver: api.Storage.Driver,
		address: s.Endpoint, exposure: "unknown", notReady: notReadySince(s),
	}
	if shown := api.Kubernetes.Version.Status; shown != nil {
		m.status = string(*shown)
	}
	switch {
	case t.Spec.ControlPlane.Gateway != nil:
		m.exposure = "gateway"
	case s.Endpoint != "":
		m.exposure = "service"
	}
	return m
}

// notReadySince is since when a tenant's API is not as its last accepted generation asks; zero when it is, or need not be.
func notReadySince(s state.Status) time.Time {
	c := meta.FindStatusCondition(s.Conditions, ConditionReady)
	if c == nil || s.Ready || slices.Contains([]string{PhasePaused, PhaseDeleting, string(v1alpha1.VersionSleeping)}, s.Phase) {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// timeBuckets of what takes seconds when all is well.
var timeBuckets = []float64{.5, 1, 2, 3, 5, 10, 20, 45, 90, 180, 600}

// DescribeMetrics registers the metrics that status has beside those of every service, without a service.
func DescribeMetrics(own, kamaji prometheus.Registerer) {
	newMetrics(own, kamaji, true)
	newLetters(nil, own)
}

func newMetrics(own, kamaji prometheus.Registerer, perTenant bool) *metrics {
	m := &metrics{
		timeToReady: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "stoker_time_to_ready_seconds", Help: "From the acceptance of a generation to Ready.", Buckets: timeBuckets,
		}),
		timeToStep: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stoker_time_to_step_seconds", Help: "From the acceptance of a generation to a step on its way to Ready, by the step's fact.",
			Buckets: timeBuckets,
		}, []string{"step"}),
		perTenant: perTenant, now: time.Now, tenants: map[events.Key]tenant{},
	}
	for service, facts := range stepsToReady {
		for _, what := range facts {
			m.timeToStep.WithLabelValues(service + "." + what) // a rate sees the first only beside a nought before it
		}
	}
	phases := prometheus.NewDesc("stoker_tenants", "Tenants of the partitions this replica holds.", []string{"phase"}, nil)
	longest := prometheus.NewDesc("stoker_tenant_longest_not_ready_seconds",
		"How long the tenant has not been Ready that has not been for the longest; 0 without one. Paused, sleeping and deleted ones don't count.", nil, nil)
	own.MustRegister(m.timeToReady, m.timeToStep, metric.AtScrape{Gauges: []*prometheus.Desc{phases, longest}, Values: func(c chan<- prometheus.Metric) {
		counts, now := map[string]int{}, m.now()
		first := now
		m.each(func(_ events.Key, t tenant) {
			counts[t.phase]++
			if !t.notReady.IsZero() && t.notReady.Before(first) {
				first = t.notReady
			}
		})
		for phase, n := range counts {
			c <- metric.Gauge(phases, float64(n), phase)
		}
		c <- metric.Gauge(longest, now.Sub(first).Seconds())
	}})
	kamaji.MustRegister(m.kamaji(), kamajiBuild())
	return m
}

// kamaji is what Kamaji measures of tenants.
func (m *metrics) kamaji() prometheus.Collector {
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kamaji_tenant_control_plane"+n, help, labels, nil)
	}
	current := desc("s_current", "Tenants of the partitions this replica holds, by whether they are Ready.", "ready")
	info := desc("_info", "What a tenant is; always 1.",
		"tcp_namespace", "tcp_name", "kubernetes_version", "datastore_driver", "address", "exposure_strategy")
	status := desc("_status", "How a tenant is, by status.kubernetesResources.version.status; always 1.",
		"tcp_namespace", "tcp_name", "status", "ready")
	return metric.AtScrape{
		Gauges: []*prometheus.Desc{current}, PerTenant: []*prometheus.Desc{info, status}, Values: func(c chan<- prometheus.Metric) {
			counts := map[bool]int{}
			m.each(func(key events.Key, t tenant) {
				counts[t.ready]++
				if m.perTenant {
					c <- metric.Gauge(info, 1, key.Namespace, key.Name, t.version, t.driver, t.address, t.exposure)
					c <- metric.Gauge(status, 1, key.Namespace, key.Name, t.status, strconv.FormatBool(t.ready))
				}
			})
			for _, ready := range []bool{true, false} {
				c <- metric.Gauge(current, float64(counts[ready]), strconv.FormatBool(ready))
			}
		},
	}
}

// kamajiBuild is which build this is, in Kamaji's words. A build is the same whenever it is made, so it has no time.
func kamajiBuild() prometheus.Collector {
	build := version.Get()
	commit, dirty := strings.CutSuffix(build.Revision, "-dirty")
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kamaji_build_info", Help: "Which build this is; always 1.", ConstLabels: prometheus.Labels{
			"version": build.Version, "commit": commit, "dirty": strconv.FormatBool(dirty), "repo": "https://github.com/stoker-k8s/stoker",
			"build_time": version.Unknown,
		},
	}, func() float64 { return 1 })
}

// each calls f with every tenant as it is now. What f sends is taken by others, who are not waited for with the lock held.
func (m *metrics) each(f func(events.Key, tenant)) {
	m.mu.Lock()
	now := maps.Clone(m.tenants)
	m.mu.Unlock()
	for key, t := range now {
		f(key, t)
	}
}

// note counts a tenant as what it is now. During a pause, what is not known of it stays what it was.
func (m *metrics) note(key events.Key, t tenant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.tenants[key]
	t.status, t.driver = cmp.Or(t.status, before.status), cmp.Or(t.driver, before.driver)
	m.tenants[key] = t
}

// stepsToReady are the facts that lead to Ready, in about the order in which they come.
var stepsToReady = map[string][]string{
	name.ServiceDatastore: {event.Provisioned},
	name.ServiceWorkload:  {event.Exposed, event.Available, event.Upgraded},
	name.ServiceCerts:     {event.Issued},
	name.ServiceAddons:    {event.Applied},
}

// noteSteps measures when the steps were done that the events of a turn tell of. What comes after the generation has been Ready is
// another story: a pod that came back, a certificate that was renewed.
func (m *metrics) noteSteps(t *loop.Turn, now state.Status) {
	for _, e := range t.Events {
		if e.Err != nil || !slices.Contains(stepsToReady[e.Service], e.What) {
			continue
		}
		var about event.About
		if json.Unmarshal(e.Data(), &about) != nil || about.UID != t.UID || about.Generation != t.Generation {
			continue
		}
		if now.ReadyGeneration != t.Generation || !e.Time().After(now.ReadyAt) {
			m.timeToStep.WithLabelValues(e.Service + "." + e.What).Observe(max(0, e.Time().Sub(t.Tenant.AcceptedAt).Seconds()))
		}
	}
}

// forget counts a tenant no more.
func (m *metrics) forget(key events.Key) {
	m.mu.Lock()
	delete(m.tenants, key)
	m.mu.Unlock()
}

// keep forgets the tenants of partitions other than these.
func (m *metrics) keep(partitions []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.tenants, func(key events.Key, _ tenant) bool { return !slices.Contains(partitions, key.Partition()) })
}
