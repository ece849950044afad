package datastore

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// gauges shows the DataStores as metrics at the time of a scrape.
type gauges struct {
	of                                        *stores
	up, latency, bytes, keys, ofBytes, ofKeys *prometheus.Desc
}

func newGauges(of *stores) *gauges {
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("stoker_datastore_"+n, help, append([]string{"datastore"}, labels...), nil)
	}
	return &gauges{
		of:      of,
		up:      desc("up", "Whether the database answered this replica last."),
		latency: desc("check_seconds", "How long the database took to answer this replica's last check."),
		bytes:   desc("tenant_bytes", "Sizes of the DataStore's tenants, as measured by the replica that works on it."),
		keys:    desc("tenant_keys", "Keys of the DataStore's tenants, as measured by the replica that works on it."),
		ofBytes: desc("schema_bytes", "Size of a tenant, of the ten largest or, by annotation, of all.", "schema"),
		ofKeys:  desc("schema_keys", "Keys of a tenant, of the ten largest or, by annotation, of all.", "schema"),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.up, g.latency, g.bytes, g.keys, g.ofBytes, g.ofKeys} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(c chan<- prometheus.Metric) {
	for _, n := range g.of.names() {
		st := g.of.get(n)
		st.mu.Lock()
		up, latency, there, sizes, all := 0.0, st.latency, st.object != nil, st.sizes, st.annotations[name.AnnotationTenantMetrics] == "true"
		if st.conn != nil && st.away == nil {
			up = 1
		}
		if !st.mine {
			sizes = nil
		}
		st.mu.Unlock()
		if there {
			c <- prometheus.MustNewConstMetric(g.up, prometheus.GaugeValue, up, n)
		}
		if there && latency > 0 {
			c <- prometheus.MustNewConstMetric(g.latency, prometheus.GaugeValue, latency.Seconds(), n)
		}
		if sizes == nil {
			continue
		}
		ofBytes := func(s driver.Size) int64 { return s.Bytes }
		ofKeys := func(s driver.Size) int64 { return s.Keys }
		c <- histogram(g.bytes, sizes, ofBytes, []float64{1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30}, n)
		c <- histogram(g.keys, sizes, ofKeys, []float64{1e2, 1e3, 1e4, 1e5, 1e6}, n)
		for _, schema := range shown(sizes, all) {
			c <- prometheus.MustNewConstMetric(g.ofBytes, prometheus.GaugeValue, float64(sizes[schema].Bytes), n, schema)
			c <- prometheus.MustNewConstMetric(g.ofKeys, prometheus.GaugeValue, float64(sizes[schema].Keys), n, schema)
		}
	}
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

// histogram of the sizes as they are, not of samples over time.
func histogram(desc *prometheus.Desc, sizes map[string]driver.Size, of func(driver.Size) int64, bounds []float64, dataStore string) prometheus.Metric {
	buckets, sum := map[float64]uint64{}, 0.0
	for _, bound := range bounds {
		buckets[bound] = 0
	}
	for _, s := range sizes {
		v := float64(of(s))
		sum += v
		for _, bound := range bounds {
			if v <= bound {
				buckets[bound]++
			}
		}
	}
	return prometheus.MustNewConstHistogram(desc, uint64(len(sizes)), sum, buckets, dataStore)
}
