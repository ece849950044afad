// Package natsmetrics shows to Prometheus what a NATS server says of itself on its monitoring port. Tenants' buckets are counted and
// not listed: how many series there are doesn't grow with the tenants.
package natsmetrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// timeout bounds the questions of one scrape to the server, so that a scrape answers while the server doesn't.
const timeout = 5 * time.Second

// Serve answers scrapes at address (host:port) about the server with this monitoring URL (http://localhost:8222) until ctx ends.
// say gets what a scrape can't tell. The error is that of the port.
func Serve(ctx context.Context, address, monitor string, say func(error)) error {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{monitor: strings.TrimSuffix(monitor, "/"), say: say})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: timeout}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// collector asks a server at each scrape.
type collector struct {
	monitor string
	say     func(error)
}

func desc(n, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("stoker_nats_server_"+n, help, labels, nil)
}

var (
	up          = desc("up", "Whether the server answers on its monitoring port.")
	info        = desc("info", "Which server it is; always 1.", "server", "version", "cluster")
	started     = desc("start_time_seconds", "When the server was started.")
	connections = desc("connections", "Connections of clients.")
	slow        = desc("slow_consumers_total", "Connections that were too slow to take what was sent to them.")
	messages    = desc("messages_total", "Messages of clients, received (in) and sent (out).", "direction")
	traffic     = desc("bytes_total", "Bytes of messages of clients, received (in) and sent (out).", "direction")
	memory      = desc("memory_bytes", "Memory of the server's process.")
	cpu         = desc("cpu_ratio", "Share of one processor that the server uses.")
	storage     = desc("storage_bytes", "What JetStream has on the server's disk.")
	maxStorage  = desc("storage_max_bytes", "What JetStream may have on the server's disk.")
	apiErrors   = desc("api_errors_total", "Requests to JetStream's API that the server answered by an error, of which some are normal.")
	leaderKnown = desc("leader_known", "Whether the cluster has a leader as far as the server knows; 1 for a server without a cluster.")

	streamMessages = desc("stream_messages", "Messages of one of Stoker's streams; shown by the stream's leader.", "stream")
	streamBytes    = desc("stream_bytes", "Size of one of Stoker's streams; shown by the stream's leader.", "stream")
	streamMaxBytes = desc("stream_max_bytes", "Largest size of one of Stoker's streams; shown by the stream's leader.", "stream")
	streamLagging  = desc("stream_replicas_lagging", "Replicas of one of Stoker's streams that are away or behind; shown by the stream's leader.", "stream")
	unprocessed    = desc("consumer_unprocessed", "Events that no replica of a service has received yet; shown by the stream's leader.", "stream", "service")
	ackPending     = desc("consumer_ack_pending",
		"Events that a replica of a service has received and not acknowledged; shown by the stream's leader.", "stream", "service")
	buckets     = desc("tenant_buckets", "Tenants' buckets of which this server is the leader.")
	bucketBytes = desc("tenant_buckets_bytes", "Size of the tenants' buckets of which this server is the leader.")
)

// Describe tells nothing, for what is shown depends on the server.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks the server.
func (c collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var v natsd.Varz
	var js natsd.JSInfo
	err := errors.Join(c.ask(ctx, "/varz", &v), c.ask(ctx, "/jsz?streams=true&consumers=true&config=true&acc="+events.AccountStoker, &js))
	if err != nil {
		c.say(err)
		to <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, 0)
		return
	}
	to <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, 1)
	showServer(to, v)
	showJetStream(to, v, js)
}

// ask decodes what the server answers to a path.
func (c collector) ask(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.monitor+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s", c.monitor, path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s%s: %w", c.monitor, path, err)
	}
	return nil
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

func showServer(to chan<- prometheus.Metric, v natsd.Varz) {
	gauge(to, info, 1, v.Name, v.Version, v.Cluster.Name)
	gauge(to, started, float64(v.Start.Unix()))
	gauge(to, connections, float64(v.Connections))
	counter(to, slow, float64(v.SlowConsumers))
	counter(to, messages, float64(v.InMsgs), "in")
	counter(to, messages, float64(v.OutMsgs), "out")
	counter(to, traffic, float64(v.InBytes), "in")
	counter(to, traffic, float64(v.OutBytes), "out")
	gauge(to, memory, float64(v.Mem))
	gauge(to, cpu, v.CPU/100) // from percent
}

// showJetStream shows storage, and of streams what this server leads.
func showJetStream(to chan<- prometheus.Metric, v natsd.Varz, js natsd.JSInfo) {
	gauge(to, storage, float64(js.Store))
	gauge(to, maxStorage, float64(js.Config.MaxStore))
	counter(to, apiErrors, float64(js.API.Errors))
	known := 1.0
	if js.Meta != nil && js.Meta.Leader == "" {
		known = 0
	}
	gauge(to, leaderKnown, known)
	n, size := 0, uint64(0)
	for _, account := range js.AccountDetails {
		for _, s := range account.Streams {
			switch {
			case s.Cluster != nil && s.Cluster.Leader != v.Name:
			case strings.HasPrefix(s.Name, "KV_tenant_"):
				n, size = n+1, size+s.State.Bytes
			case strings.HasPrefix(s.Name, "STOKER_"), strings.HasPrefix(s.Name, "KV_stoker_"):
				showStream(to, s)
			}
		}
	}
	gauge(to, buckets, float64(n))
	gauge(to, bucketBytes, float64(size))
}

func showStream(to chan<- prometheus.Metric, s natsd.StreamDetail) {
	gauge(to, streamMessages, float64(s.State.Msgs), s.Name)
	gauge(to, streamBytes, float64(s.State.Bytes), s.Name)
	if s.Config != nil {
		gauge(to, streamMaxBytes, float64(s.Config.MaxBytes), s.Name)
	}
	lagging := 0
	if s.Cluster != nil {
		for _, r := range s.Cluster.Replicas {
			if r.Offline || !r.Current {
				lagging++
			}
		}
	}
	gauge(to, streamLagging, float64(lagging), s.Name)
	waiting, unacknowledged := map[string]float64{}, map[string]float64{}
	for _, c := range s.Consumer {
		service, _, ofService := strings.Cut(c.Name, "-")
		if !ofService || c.Config == nil || c.Config.Durable == "" {
			continue // somebody who reads along
		}
		waiting[service] += float64(c.NumPending)
		unacknowledged[service] += float64(c.NumAckPending)
	}
	for service := range waiting {
		gauge(to, unprocessed, waiting[service], s.Name, service)
		gauge(to, ackPending, unacknowledged[service], s.Name, service)
	}
}
