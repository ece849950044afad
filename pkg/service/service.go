// Package service is what every service's process has in common: configuration from flags and environment, logs, signals,
// the connections to NATS and Kubernetes, and the HTTP port with /livez, /readyz and /metrics.
package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/health"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/pkg/version"
)

// Config is how every service is configured.
type Config struct {
	// Name of the service ("certs").
	Name string
	// NATS is the URL of the servers, comma-separated; NATSSeed the file with the service's nkey seed, NATSCA the file
	// with the CA of the servers' certificates.
	NATS, NATSSeed, NATSCA string
	// Namespace limits the service to tenants of one namespace, WatchFilter to objects whose label
	// cluster.x-k8s.io/watch-filter has this value; empty: all. Several installations share a management cluster that way.
	Namespace, WatchFilter string
	// StreamReplicas is how many NATS servers hold each stream.
	StreamReplicas int
	// Kubeconfig of the management cluster; empty inside a cluster.
	Kubeconfig string
	// APITimeout bounds a request to the management cluster's API server, a third of what a turn may take; 0: 10 s, and 30 s for a turn.
	APITimeout time.Duration
	// Replica names this process among the service's replicas; stable over restarts.
	Replica string
	// HTTP is the address of /livez, /readyz and /metrics, or several, comma-separated; empty for none.
	HTTP string
	// MetricsCert and MetricsKey are the files of that port's certificate; empty: it is served without TLS. MetricsAuth lets only
	// those get /metrics who show a token of the management cluster and may get the non-resource URL /metrics there.
	MetricsCert, MetricsKey string
	MetricsAuth             bool
	// TenantMetrics has /metrics show each tenant by name, besides how many there are.
	TenantMetrics bool
	// Log gets the service's log; required.
	Log *slog.Logger
}

// Clients are a service's connections.
type Clients struct {
	Bus    *events.Bus
	Kube   *kube.Client
	Health *health.Health
	// Metrics takes what the service measures, and puts the label service on it. Kamaji takes the metrics that Kamaji has, whose labels
	// are Kamaji's.
	Metrics, Kamaji prometheus.Registerer
	// Handlers is told how long it took to make something so.
	Handlers *metric.HandlerTime
	Log      *slog.Logger
	// TenantRequests is told of the requests to tenants' API servers, ExternalRequests of those to other clusters in which tenants are.
	TenantRequests, ExternalRequests kube.RequestFunc

	registry *prometheus.Registry
}

// Connect opens the connections. It does not wait for NATS or Kubernetes to be there.
func Connect(cfg Config) (*Clients, error) {
	log := cfg.Log.With("service", cfg.Name)
	h := health.New(log)
	registry, labelled := newRegistry(cfg.Name)
	bus, err := events.Connect(events.Config{
		URL: cfg.NATS, User: cfg.Name, SeedFile: cfg.NATSSeed, CAFile: cfg.NATSCA, Replica: cfg.Replica,
		StreamReplicas: cfg.StreamReplicas, Log: log, Health: h,
	})
	if err != nil {
		return nil, err
	}
	requests := newAPIRequests(labelled)
	k, err := kube.Connect(cfg.Kubeconfig, kube.Options{
		FieldManager: name.FieldManager(cfg.Name), Health: h, Namespace: cfg.Namespace, WatchFilter: cfg.WatchFilter,
		Requests: requests.to(managementCluster), Timeout: cfg.APITimeout,
	})
	if err != nil {
		bus.Close()
		return nil, err
	}
	labelled.MustRegister(natsMetrics(bus))
	return &Clients{
		Bus: bus, Kube: k, Health: h, Metrics: labelled, Kamaji: registry, Log: log, TenantRequests: requests.to(tenantCluster),
		ExternalRequests: requests.to(externalCluster),
		Handlers:         metric.NewHandlerTime(registry, metric.Handlers(cfg.Name)...), registry: registry,
	}, nil
}

// Close ends the connections.
func (c *Clients) Close() {
	c.Bus.Close()
	c.Kube.Close()
}

// Run opens the connections, serves HTTP and runs the loop that build makes, until ctx ends or one of them fails for good.
func Run(ctx context.Context, cfg Config, build func(*Clients) (*loop.Loop, error)) error {
	c, err := Connect(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	l, err := build(c)
	if err != nil {
		return err
	}
	l.Metrics, l.Handle, l.TurnTimeout = c.Metrics, c.wholeTurns(cfg.Name, l.Handle), 3*cfg.APITimeout
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := c.Serve(ctx, cfg); err != nil {
			cancel(err)
		}
	}()
	err = l.Run(ctx)
	cancel(nil)
	<-served
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// NewLog is the log of a service from a level on: JSON on standard error.
func NewLog(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// Flag declares a flag that is also an environment variable (STOKER_<NAME>).
type Flag func(p *string, name, fallback, usage string)

// Main is the main function of a service's own binary: flags, environment, signals, exit code. more declares what the
// service has beyond the common flags.
func Main(service, usage string, run func(context.Context, Config) error, more ...func(Flag)) {
	cfg := Config{Name: service}
	flags := flag.NewFlagSet("stoker-"+service, flag.ExitOnError)
	text := func(p *string, name, fallback, usage string) {
		env := "STOKER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if v := os.Getenv(env); v != "" {
			fallback = v
		}
		flags.StringVar(p, name, fallback, usage+" ($"+env+")")
	}
	text(&cfg.NATS, "nats", "nats://127.0.0.1:4222", "`URL` of the NATS servers, comma-separated")
	text(&cfg.NATSSeed, "nats-seed", "", "`file` with the nkey seed of this service's NATS user")
	text(&cfg.NATSCA, "nats-ca", "", "`file` with the CA of the NATS servers' certificates")
	text(&cfg.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the management cluster; empty inside a cluster")
	var apiTimeout string
	text(&apiTimeout, "api-timeout", "10s", "`time` that a request to the management cluster's API server may take, 1s or more; a turn has three times as long")
	text(&cfg.Namespace, "namespace", "", "`namespace` of the tenants this installation works on; empty for all")
	text(&cfg.WatchFilter, "watch-filter", "", "`value` of the label cluster.x-k8s.io/watch-filter of the objects this installation works on; empty for all")
	text(&cfg.Replica, "replica", events.DefaultReplica(), "`name` of this process among the service's replicas, stable over restarts")
	cfg.httpFlags(flags, text)
	var level string
	text(&level, "log-level", "info", "debug, info, warn or error")
	for _, m := range more {
		m(text)
	}
	var replicas string
	text(&replicas, "stream-replicas", "1", "NATS servers that hold each stream: 1, 3 or 5")
	build := flags.Bool("version", false, "print which build this is, and end")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "%s\n\nUsage: stoker-%s [flags]\n\n", usage, service)
		flags.PrintDefaults()
	}
	_ = flags.Parse(os.Args[1:])
	if *build {
		fmt.Printf("stoker-%s %s\n", service, version.Get()) //nolint:forbidigo // it is what the flag asks for
		return
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "unexpected argument %q; see --help\n", flags.Arg(0))
		os.Exit(2)
	}
	switch replicas {
	case "1", "3", "5":
		cfg.StreamReplicas = int(replicas[0] - '0')
	default:
		fmt.Fprintf(os.Stderr, "--stream-replicas %q: must be 1, 3 or 5\n", replicas)
		os.Exit(2)
	}
	var err error
	if cfg.APITimeout, err = time.ParseDuration(apiTimeout); err != nil || cfg.APITimeout < time.Second {
		fmt.Fprintf(os.Stderr, "--api-timeout %q: must be a duration of 1s or more\n", apiTimeout)
		os.Exit(2)
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		fmt.Fprintf(os.Stderr, "--log-level %q: must be debug, info, warn or error\n", level)
		os.Exit(2)
	}
	cfg.Log = NewLog(l)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		cfg.Log.Error("stopped", "error", err)
		os.Exit(1)
	}
}
