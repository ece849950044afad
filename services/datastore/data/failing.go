package data

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// failing are the tenants of this replica whose last backup could not be made.
type failing struct {
	store.Tenants[struct{}]
	// since the replica started
	backups, failures atomic.Int64
}

// made notes that a tenant's backup was made.
func (f *failing) made(key events.Key) {
	f.Forget(key)
	f.backups.Add(1)
}

// failed notes that a tenant's backup could not be made now, add that it could not be made when it was tried last.
func (f *failing) failed(key events.Key) {
	f.add(key)
	f.failures.Add(1)
}

func (f *failing) add(key events.Key) { f.Set(key, struct{}{}) }

// register has them shown at each scrape.
func (f *failing) register(own prometheus.Registerer) {
	failing := prometheus.NewDesc("stoker_datastore_backups_failing", "Tenants of this replica whose last backup could not be made.", nil, nil)
	backups := prometheus.NewDesc("stoker_datastore_backups_total", "Backups of tenants that this replica made, or could not make.", []string{"result"}, nil)
	own.MustRegister(metric.AtScrape{Gauges: []*prometheus.Desc{failing}, Counters: []*prometheus.Desc{backups}, Values: func(c chan<- prometheus.Metric) {
		c <- metric.Gauge(failing, float64(len(f.Values())))
		c <- prometheus.MustNewConstMetric(backups, prometheus.CounterValue, float64(f.backups.Load()), "made")
		c <- prometheus.MustNewConstMetric(backups, prometheus.CounterValue, float64(f.failures.Load()), "failed")
	}})
}
