package store

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// gauges are what is measured of each DataStore.
type gauges struct {
	perTenant                                                   bool // all schemas have series, not the largest alone
	up, latency, breaker, waiting, bytes, keys, ofBytes, ofKeys *prometheus.Desc
	warning, tenants, maxTenants, maxBytes                      *prometheus.Desc
}

func newGauges(perTenant bool) gauges {
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("stoker_datastore_"+n, help, append([]string{"datastore"}, labels...), nil)
	}
	return gauges{
		perTenant: perTenant,
		up:        desc("up", "Whether the database answered this replica last."),
		latency:   desc("check_seconds", "How long the database took to answer this replica's last check."),
		breaker:   desc("breaker_open", "Whether this replica takes the database for away, and asks it now and then instead of at each turn."),
		waiting:   desc("tenants_waiting", "Tenants of this replica that wait for the DataStore to be there."),
		warning: desc("warning", "Whether the last check of an etcd found something that should be put right although it can be used, by the reason "+
			"of the DataStore's condition. Shown by the replica that works on it.", "reason"),
		tenants: desc("tenants", "Tenants of this replica whose data the DataStore holds."),
		maxTenants: desc("max_tenants", "How many tenants the DataStore takes by its annotation stoker.dev/max-tenants; +Inf without one. "+
			"Shown by the replica that works on it."),
		maxBytes: desc("max_bytes", "How many bytes of tenants the DataStore takes by its annotation stoker.dev/max-bytes; +Inf without one. "+
			"Shown by the replica that works on it."),
		bytes:   desc("tenant_bytes", "Sizes of the DataStore's tenants, as measured by the replica that works on it."),
		keys:    desc("tenant_keys", "Keys of the DataStore's tenants, as measured by the replica that works on it."),
		ofBytes: desc("schema_bytes", "Size of a tenant, of the ten largest or, by flag or annotation, of all.", "schema"),
		ofKeys:  desc("schema_keys", "Keys of a tenant, of the ten largest or, by flag or annotation, of all.", "schema"),
	}
}

// Register has the DataStores shown at each scrape.
func (r *Registry) Register(own, kamaji prometheus.Registerer, perTenant bool) {
	g := newGauges(perTenant)
	own.MustRegister(metric.AtScrape{
		Gauges:     []*prometheus.Desc{g.up, g.latency, g.breaker, g.waiting, g.warning, g.tenants, g.maxTenants, g.maxBytes, g.ofBytes, g.ofKeys},
		Histograms: []*prometheus.Desc{g.bytes, g.keys},
		Values: func(c chan<- prometheus.Metric) {
			for _, n := range r.Names() {
				g.show(r.Get(n), c)
			}
		},
	})
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kamaji_datastore"+n, help, append([]string{"datastore_name"}, labels...), nil)
	}
	info := desc("_info", "What a DataStore is; always 1.", "driver")
	status := desc("_status", "Whether a DataStore can be used: True, False, or Unknown before it was tried; always 1.", "status", "ready")
	current := desc("s_current", "DataStores, by whether they can be used; always 1.", "ready", "driver")
	kamaji.MustRegister(metric.AtScrape{Gauges: []*prometheus.Desc{info, status, current}, Values: func(c chan<- prometheus.Metric) {
		for _, n := range r.Names() {
			usable, driver, mine := r.Get(n).standing()
			if !mine {
				continue // the replica that works on it shows it
			}
			ready := strconv.FormatBool(usable == metav1.ConditionTrue)
			c <- metric.Gauge(info, 1, n, driver)
			c <- metric.Gauge(status, 1, n, string(usable), ready)
			c <- metric.Gauge(current, 1, n, ready, driver)
		}
	}})
}

// standing says whether a DataStore can be used, which database it is on, and whether there is such an object and this replica works
// on it.
func (st *Store) standing() (usable metav1.ConditionStatus, driver string, mine bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.object == nil {
		return metav1.ConditionUnknown, "", false
	}
	usable = metav1.ConditionTrue
	switch {
	case st.err != nil:
		usable = metav1.ConditionFalse
	case st.conn == nil || errors.Is(st.away, errNotTried):
		usable = metav1.ConditionUnknown
	case st.away != nil:
		usable = metav1.ConditionFalse
	}
	return usable, string(st.object.Spec.Driver), st.mine
}

// show sends what is known of one DataStore.
func (g gauges) show(st *Store, c chan<- prometheus.Metric) {
	n := st.Name
	st.mu.Lock()
	latency, there, sizes, waiting := st.latency, st.object != nil, st.sizes, len(st.waiting)
	up, open := st.conn != nil && st.away == nil, st.away != nil && !errors.Is(st.away, errNotTried)
	all := g.perTenant || st.annotations[name.AnnotationTenantMetrics] == "true"
	mine, warned, tenants := st.mine, st.warned, st.homeTenants()
	warns := mine && there && st.object.Spec.Driver == v1alpha1.DriverEtcd
	maxTenants, maxBytes, _ := name.Limits(st.annotations) // one that can't be read counts as none here; the status says so
	if !mine {
		sizes = nil
	}
	st.mu.Unlock()
	if !there {
		return
	}
	c <- metric.Gauge(g.tenants, float64(tenants), n)
	if warns {
		for _, why := range []string{reason.EtcdDeniesStatus, reason.EtcdNearlyFull, reason.EtcdFull} {
			c <- metric.Gauge(g.warning, metric.Bool(up && warned == why), n, why)
		}
	}
	if mine {
		c <- metric.Gauge(g.maxTenants, limit(maxTenants), n)
		c <- metric.Gauge(g.maxBytes, limit(maxBytes), n)
	}
	c <- metric.Gauge(g.up, metric.Bool(up), n)
	c <- metric.Gauge(g.breaker, metric.Bool(open), n)
	c <- metric.Gauge(g.waiting, float64(waiting), n)
	if latency > 0 {
		c <- metric.Gauge(g.latency, latency.Seconds(), n)
	}
	if sizes == nil {
		return
	}
	bytes, keys := make([]float64, 0, len(sizes)), make([]float64, 0, len(sizes))
	for _, size := range sizes {
		bytes, keys = append(bytes, float64(size.Bytes)), append(keys, float64(size.Keys))
	}
	c <- metric.Histogram(g.bytes, bytes, []float64{1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30}, n)
	c <- metric.Histogram(g.keys, keys, []float64{1e2, 1e3, 1e4, 1e5, 1e6}, n)
	for _, schema := range shown(sizes, all) {
		c <- metric.Gauge(g.ofBytes, float64(sizes[schema].Bytes), n, schema)
		c <- metric.Gauge(g.ofKeys, float64(sizes[schema].Keys), n, schema)
	}
}

// limit is a limit as a value, infinite without one.
func limit(n *int64) float64 {
	if n == nil {
		return math.Inf(1)
	}
	return float64(*n)
}

// shown are the schemas that have series of their own: all, or the largest.
func shown(sizes map[string]driver.Size, all bool) []string {
	schemas := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b].Bytes, sizes[a].Bytes), cmp.Compare(a, b))
	})
	if all {
		return schemas
	}
	return schemas[:min(len(schemas), largest)]
}
