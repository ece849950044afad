package status

// How many dead letters there are. NATS knows; it is asked when Prometheus asks, by the one replica that holds the first partition.

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

// letters are the dead letters as they were counted last. It is safe for concurrent use.
type letters struct {
	count func(context.Context) (uint64, error)
	now   func() time.Time

	mu    sync.Mutex
	mine  bool // this replica shows them
	until time.Time
	known bool
	n     uint64
}

// newLetters counts those in the stream of a connection, nil to be described only.
func newLetters(bus *events.Bus, own prometheus.Registerer) *letters {
	l := &letters{now: time.Now, count: func(ctx context.Context) (uint64, error) {
		s, err := bus.JetStream().Stream(ctx, events.StreamDead)
		if err != nil {
			return 0, err
		}
		return s.CachedInfo().State.Msgs, nil
	}}
	held := prometheus.NewDesc("stoker_dead_letters_held", "Dead letters that NATS holds; shown by one replica.", nil, nil)
	own.MustRegister(metric.AtScrape{Gauges: []*prometheus.Desc{held}, Values: func(c chan<- prometheus.Metric) {
		if n, known := l.ask(); known {
			c <- metric.Gauge(held, float64(n))
		}
	}})
	return l
}

// keep notes the partitions that this replica holds.
func (l *letters) keep(partitions []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mine = slices.Contains(partitions, 0)
}

// ask returns how many there are; known is false when another replica shows them or NATS doesn't say.
func (l *letters) ask() (n uint64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mine && !l.now().Before(l.until) {
		ctx, cancel := context.WithTimeout(context.Background(), lettersTimeout)
		defer cancel()
		n, err := l.count(ctx)
		l.n, l.known, l.until = n, err == nil, l.now().Add(lettersFor)
	}
	return l.n, l.mine && l.known
}
