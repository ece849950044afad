package metric_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stoker-k8s/stoker/pkg/metric"
)

func TestCatalogue(t *testing.T) {
	opts := prometheus.Opts{Name: "m", Help: "It says."}
	histogram := prometheus.HistogramOpts{Name: "m", Help: "It says."}
	desc := prometheus.NewDesc("m", "It says.", []string{"a", "b"}, prometheus.Labels{"c": "1"})
	for what, test := range map[string]struct {
		declared prometheus.Collector
		typ      dto.MetricType
		labels   []string
		tenants  bool
	}{
		"a counter":                     {declared: prometheus.NewCounter(prometheus.CounterOpts(opts)), typ: dto.MetricType_COUNTER},
		"a gauge":                       {declared: prometheus.NewGauge(prometheus.GaugeOpts(opts)), typ: dto.MetricType_GAUGE},
		"a histogram":                   {declared: prometheus.NewHistogram(histogram), typ: dto.MetricType_HISTOGRAM},
		"counters by labels":            {prometheus.NewCounterVec(prometheus.CounterOpts(opts), []string{"y", "x"}), dto.MetricType_COUNTER, []string{"x", "y"}, false},
		"gauges by labels":              {prometheus.NewGaugeVec(prometheus.GaugeOpts(opts), []string{"x"}), dto.MetricType_GAUGE, []string{"x"}, false},
		"histograms by labels":          {prometheus.NewHistogramVec(histogram, []string{"x"}), dto.MetricType_HISTOGRAM, []string{"x"}, false},
		"gauges at the scrape":          {metric.AtScrape{Gauges: []*prometheus.Desc{desc}}, dto.MetricType_GAUGE, []string{"a", "b", "c"}, false},
		"counters at the scrape":        {metric.AtScrape{Counters: []*prometheus.Desc{desc}}, dto.MetricType_COUNTER, []string{"a", "b", "c"}, false},
		"histograms at the scrape":      {metric.AtScrape{Histograms: []*prometheus.Desc{desc}}, dto.MetricType_HISTOGRAM, []string{"a", "b", "c"}, false},
		"gauges that show every tenant": {metric.AtScrape{PerTenant: []*prometheus.Desc{desc}}, dto.MetricType_GAUGE, []string{"a", "b", "c"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			c := &metric.Catalogue{}
			c.MustRegister(test.declared)
			if len(c.Entries) != 1 {
				t.Fatalf("it notes %v", c.Entries)
			}
			e := c.Entries[0]
			if e.Family.GetName() != "m" || e.Family.GetHelp() != "It says." || e.Family.GetType() != test.typ ||
				!slices.Equal(e.Labels(), test.labels) || e.PerTenant != test.tenants {
				t.Errorf("it notes %v with labels %v, tenants %v", e.Family, e.Labels(), e.PerTenant)
			}
		})
	}
	t.Run("of what doesn't tell its types, it says so", func(t *testing.T) {
		if err := (&metric.Catalogue{}).Register(prometheus.NewRegistry()); err == nil {
			t.Error("it notes it")
		}
	})
}

func TestHistogramCountsEachValueInAllBucketsAboveIt(t *testing.T) {
	var got dto.Metric
	m := metric.Histogram(prometheus.NewDesc("m", "It says.", nil, nil), []float64{-1, 1, 1.5, 3, 9}, []float64{0, 1, 3})
	if err := m.Write(&got); err != nil {
		t.Fatal(err)
	}
	buckets := ""
	for _, b := range got.GetHistogram().GetBucket() {
		buckets += fmt.Sprintf("%v:%d ", b.GetUpperBound(), b.GetCumulativeCount())
	}
	if buckets != "0:1 1:2 3:4 " || got.GetHistogram().GetSampleCount() != 5 || got.GetHistogram().GetSampleSum() != 13.5 {
		t.Errorf("%v", &got)
	}
}

func TestHandlerTime(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	h := metric.NewHandlerTime(r, "made", "idle")
	h.Took("made", time.Second)
	h.Took("made", 3*time.Second)
	h.Took("demo", time.Second) // none of the metric's
	(*metric.HandlerTime)(nil).Took("made", time.Second)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range families[0].GetMetric() {
		got[s.GetLabel()[0].GetValue()] = fmt.Sprint(s.GetHistogram().GetSampleCount(), " in ", s.GetHistogram().GetSampleSum())
	}
	if want := map[string]string{"made": "2 in 4", "idle": "0 in 0"}; len(families) != 1 || !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
