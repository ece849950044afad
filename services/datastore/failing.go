package datastore

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

// failing are the tenants of this replica whose last backup could not be made. The zero value has none. It is safe for concurrent use.
type failing struct {
	mu      sync.Mutex
	tenants map[events.Key]struct{}
	// since the replica started
	backups, failures int
}

// made notes that a tenant's backup was made.
func (f *failing) made(key events.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backups++
	delete(f.tenants, key)
}

// failed notes that a tenant's backup could not be made now, add that it could not be made when it was tried last.
func (f *failing) failed(key events.Key) {
	f.mu.Lock()
	f.failures++
	f.mu.Unlock()
	f.add(key)
}

func (f *failing) add(key events.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tenants == nil {
		f.tenants = map[events.Key]struct{}{}
	}
	f.tenants[key] = struct{}{}
}

// forget forgets a tenant that is gone, or has no backups.
func (f *failing) forget(key events.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tenants, key)
}

// keep forgets the tenants in partitions that this replica doesn't hold.
func (f *failing) keep(held []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.tenants {
		if !slices.Contains(held, key.Partition()) {
			delete(f.tenants, key)
		}
	}
}

// register has them shown at each scrape.
func (f *failing) register(own prometheus.Registerer) {
	failing := prometheus.NewDesc("stoker_datastore_backups_failing", "Tenants of this replica whose last backup could not be made.", nil, nil)
	backups := prometheus.NewDesc("stoker_datastore_backups_total", "Backups of tenants that this replica made, or could not make.", []string{"result"}, nil)
	own.MustRegister(metric.AtScrape{Gauges: []*prometheus.Desc{failing}, Counters: []*prometheus.Desc{backups}, Values: func(c chan<- prometheus.Metric) {
		f.mu.Lock()
		defer f.mu.Unlock()
		c <- metric.Gauge(failing, float64(len(f.tenants)))
		c <- prometheus.MustNewConstMetric(backups, prometheus.CounterValue, float64(f.backups), "made")
		c <- prometheus.MustNewConstMetric(backups, prometheus.CounterValue, float64(f.failures), "failed")
	}})
}
