package service

// What is measured of every service, whatever it does.

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/pkg/version"
)

// DescribeMetrics registers the metrics that every service has, without a service.
func DescribeMetrics(own, kamaji prometheus.Registerer) {
	own.MustRegister(buildInfo())
	loop.DescribeMetrics(own)
	own.MustRegister(natsMetrics(nil))
	newAPIRequests(own)
	metric.NewHandlerTime(kamaji)
}

// newRegistry makes a service's registry, with what every Go program tells and which build this is. What is registered with labelled
// has the label service.
func newRegistry(service string) (registry *prometheus.Registry, labelled prometheus.Registerer) {
	registry = prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	labelled = prometheus.WrapRegistererWith(prometheus.Labels{"service": service}, registry)
	labelled.MustRegister(buildInfo())
	return registry, labelled
}

func buildInfo() prometheus.Collector {
	build := version.Get()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stoker_build_info", Help: "Which build this is; always 1.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "goversion": build.Go},
	}, func() float64 { return 1 })
}

// wholeTurns measures the turns of a service of which Kamaji has no handlers.
func (c *Clients) wholeTurns(service string, handle loop.Handler) loop.Handler {
	if !slices.Contains(metric.Handlers(service), service) {
		return handle
	}
	return func(ctx context.Context, t *loop.Turn) error {
		defer c.Handlers.Since(service, time.Now())
		return handle(ctx, t)
	}
}

// natsMetrics shows what the connection to NATS has met.
func natsMetrics(bus *events.Bus) prometheus.Collector {
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("stoker_nats_"+n, help, labels, nil)
	}
	connected := desc("connected", "Whether a server is connected.")
	disconnects := desc("disconnects_total", "Losses of the connection to a server.")
	reconnects := desc("reconnects_total", "Connections to a server after one was lost.")
	complaints := desc("errors_total", "What went wrong without a request to say so: refused, slow_consumer, other.", "kind")
	publish := desc("publish_errors_total", "Events and states that JetStream did not store, or did not say so in time.")
	messages := desc("messages_total", "Messages that came (in) and were sent (out).", "direction")
	bytes := desc("bytes_total", "Bytes of messages that came (in) and were sent (out).", "direction")
	return metric.AtScrape{
		Gauges: []*prometheus.Desc{connected}, Counters: []*prometheus.Desc{disconnects, reconnects, complaints, publish, messages, bytes},
		Values: func(c chan<- prometheus.Metric) {
			n := bus.Counts()
			c <- metric.Gauge(connected, metric.Bool(bus.Conn().IsConnected()))
			c <- metric.Counter(disconnects, float64(n.Disconnects))
			c <- metric.Counter(reconnects, float64(n.Reconnects))
			c <- metric.Counter(complaints, float64(n.Refused), "refused")
			c <- metric.Counter(complaints, float64(n.SlowConsumers), "slow_consumer")
			c <- metric.Counter(complaints, float64(n.Errors), "other")
			c <- metric.Counter(publish, float64(n.PublishErrors))
			c <- metric.Counter(messages, float64(n.InMessages), "in")
			c <- metric.Counter(messages, float64(n.OutMessages), "out")
			c <- metric.Counter(bytes, float64(n.InBytes), "in")
			c <- metric.Counter(bytes, float64(n.OutBytes), "out")
		},
	}
}

// Values of the label cluster.
const managementCluster, tenantCluster, externalCluster = "management", "tenant", "external"

// apiRequests counts requests to API servers.
type apiRequests struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

func newAPIRequests(r prometheus.Registerer) apiRequests {
	a := apiRequests{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoker_api_requests_total", Help: "Requests to the API servers of the management cluster, of other clusters that have tenants, and of all tenants; code 0 without an answer.",
		}, []string{"cluster", "verb", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stoker_api_request_duration_seconds", Help: "Time until the answer to a request to an API server began; watches are left out.",
			Buckets: []float64{.005, .02, .1, .5, 2, 10},
		}, []string{"cluster", "verb"}),
	}
	r.MustRegister(a.requests, a.took)
	return a
}

// to counts the requests to a cluster's API server.
func (a apiRequests) to(cluster string) kube.RequestFunc {
	return func(verb string, code int, took time.Duration) {
		a.requests.WithLabelValues(cluster, verb, strconv.Itoa(code)).Inc()
		if verb != "watch" {
			a.took.WithLabelValues(cluster, verb).Observe(took.Seconds())
		}
	}
}
