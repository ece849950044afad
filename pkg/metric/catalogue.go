package metric

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Entry is one metric as it is declared.
type Entry struct {
	// Family has its name, type and help, and one series whose labels have no values.
	Family *dto.MetricFamily
	// PerTenant says that it has a series for each tenant.
	PerTenant bool
}

// Labels are the names of the metric's labels, sorted.
func (e Entry) Labels() []string {
	var labels []string
	for _, l := range e.Family.GetMetric()[0].GetLabel() {
		labels = append(labels, l.GetName())
	}
	return labels
}

// Catalogue is a registerer that notes what is declared and asks nobody for values.
type Catalogue struct{ Entries []Entry }

var _ prometheus.Registerer = &Catalogue{}

// Register notes the metrics of a collector: a vector, or an AtScrape. Others don't say of what type theirs are.
func (c *Catalogue) Register(collector prometheus.Collector) error {
	switch m := collector.(type) {
	case AtScrape:
		gauge := func(d *prometheus.Desc, labels []string) (prometheus.Metric, error) {
			return prometheus.NewConstMetric(d, prometheus.GaugeValue, 0, labels...)
		}
		counter := func(d *prometheus.Desc, labels []string) (prometheus.Metric, error) {
			return prometheus.NewConstMetric(d, prometheus.CounterValue, 0, labels...)
		}
		return errors.Join(c.note(m.Gauges, false, gauge), c.note(m.PerTenant, true, gauge), c.note(m.Counters, false, counter),
			c.note(m.Histograms, false, emptyHistogram))
	case *prometheus.HistogramVec:
		return c.note(described(m), false, emptyHistogram)
	case *prometheus.CounterVec:
		return c.Register(AtScrape{Counters: described(m)})
	case *prometheus.GaugeVec:
		return c.Register(AtScrape{Gauges: described(m)})
	case prometheus.Metric: // one without labels
		return c.noteOne(m)
	}
	return fmt.Errorf("metrics of a %T can't be told: declare them by a vector or a metric.AtScrape", collector)
}

// MustRegister implements prometheus.Registerer.
func (c *Catalogue) MustRegister(all ...prometheus.Collector) {
	for _, collector := range all {
		if err := c.Register(collector); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer; what is noted stays.
func (c *Catalogue) Unregister(prometheus.Collector) bool { return false }

func described(c prometheus.Collector) (all []*prometheus.Desc) {
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	for d := range descs {
		all = append(all, d)
	}
	return all
}

func emptyHistogram(d *prometheus.Desc, labels []string) (prometheus.Metric, error) {
	return prometheus.NewConstHistogram(d, 0, 0, nil, labels...)
}

// maxLabels is how many labels a metric may have.
const maxLabels = 10

// note notes metrics by their descriptions, which don't say how many labels there are: it tries.
func (c *Catalogue) note(descs []*prometheus.Desc, perTenant bool, series func(*prometheus.Desc, []string) (prometheus.Metric, error)) error {
	for _, d := range descs {
		var m prometheus.Metric
		err := errors.New("no labels were tried")
		for n := 0; n <= maxLabels && err != nil; n++ {
			m, err = series(d, make([]string, n))
		}
		if err == nil {
			err = c.noteOne(m)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		c.Entries[len(c.Entries)-1].PerTenant = perTenant
	}
	return nil
}

func (c *Catalogue) noteOne(m prometheus.Metric) error {
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(one{m}); err != nil {
		return err
	}
	families, err := r.Gather()
	if err != nil {
		return err
	}
	c.Entries = append(c.Entries, Entry{Family: families[0]})
	return nil
}

// one is the collector of one metric.
type one struct{ prometheus.Metric }

func (o one) Describe(c chan<- *prometheus.Desc) { c <- o.Desc() }
func (o one) Collect(c chan<- prometheus.Metric) { c <- o.Metric }
