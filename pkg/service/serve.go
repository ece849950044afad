package service

// The HTTP port of a service: /livez and /readyz for anybody, /metrics for anybody or for whom the API server lets.

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// What a client may take, so that none holds a connection for nothing.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = time.Minute
	maxHeader     = 16 << 10 // bytes
)

// httpFlags declares the flags of the port.
func (cfg *Config) httpFlags(flags *flag.FlagSet, text Flag) {
	address := ":8080"
	if set, is := os.LookupEnv("STOKER_HTTP"); is && set == "" { // to other flags an empty variable is none
		address = ""
	}
	text(&cfg.HTTP, "http", address, "`address` of /livez, /readyz and /metrics, or several, comma-separated; empty for none")
	text(&cfg.MetricsCert, "metrics-tls-cert", "", "`file` with the certificate of the port of /metrics; empty for none")
	text(&cfg.MetricsKey, "metrics-tls-key", "", "`file` with the key of that certificate")
	flags.BoolVar(&cfg.MetricsAuth, "metrics-auth", os.Getenv("STOKER_METRICS_AUTH") == "true",
		"/metrics needs a token of the management cluster whose owner may get the non-resource URL /metrics ($STOKER_METRICS_AUTH=true)")
	flags.BoolVar(&cfg.TenantMetrics, "tenant-metrics", os.Getenv("STOKER_TENANT_METRICS") == "true",
		"/metrics has series for each tenant, where the service has such ($STOKER_TENANT_METRICS=true)")
}

// checkHTTP says what of the settings can't be.
func (cfg Config) checkHTTP() error {
	switch {
	case (cfg.MetricsCert == "") != (cfg.MetricsKey == ""):
		return fmt.Errorf("--metrics-tls-cert %q and --metrics-tls-key %q: give both or none", cfg.MetricsCert, cfg.MetricsKey)
	case cfg.MetricsAuth && cfg.MetricsCert == "":
		return errors.New("--metrics-auth: tokens would be sent in the clear; give --metrics-tls-cert and --metrics-tls-key")
	}
	return nil
}

// Serve serves /livez, /readyz and /metrics as the configuration says until ctx ends. Without an address it serves nothing.
func (c *Clients) Serve(ctx context.Context, cfg Config) error {
	if cfg.HTTP == "" {
		<-ctx.Done()
		return nil
	}
	if err := cfg.checkHTTP(); err != nil {
		return err
	}
	server, err := c.server(cfg)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	serve := server.Serve
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	addresses := strings.Split(cfg.HTTP, ",")
	ended := make(chan error, len(addresses))
	for _, address := range addresses { // each until server is closed
		go func() { ended <- listen(ctx, address, serve) }()
	}
	err = <-ended
	_ = server.Close()
	for range addresses[1:] {
		<-ended
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listen has an address served.
func listen(ctx context.Context, address string, serve func(net.Listener) error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("http address %s: %w", address, err)
	}
	return serve(listener)
}

func (c *Clients) server(cfg Config) (*http.Server, error) {
	mux := http.NewServeMux()
	c.Health.Handle(mux)
	metrics := promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{})
	if cfg.MetricsAuth {
		metrics = (&reviewer{kube: c.Kube, log: c.Log, known: map[[sha256.Size]byte]verdict{}}).lets(metrics)
	}
	mux.Handle("GET /metrics", metrics)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	if cfg.MetricsCert == "" {
		return server, nil
	}
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cfg.MetricsCert, cfg.MetricsKey)
		if err != nil {
			return nil, fmt.Errorf("--metrics-tls-cert %s and --metrics-tls-key %s: %w", cfg.MetricsCert, cfg.MetricsKey, err)
		}
		return &pair, nil
	}
	if _, err := read(); err != nil {
		return nil, err
	}
	server.TLSConfig = &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Read for each connection, of which there are few: a certificate that is renewed counts at once.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return read() },
	}
	return server, nil
}

const (
	// reviewFor is how long an answer of the API server counts.
	reviewFor = time.Minute
	// maxKnown is how many answers are kept.
	maxKnown = 64
)

// reviewer lets those get /metrics who the API server says may, as kube-rbac-proxy does.
type reviewer struct {
	kube *kube.Client
	log  *slog.Logger

	asking sync.Mutex // one review at a time, so that strangers don't keep the API server busy
	mu     sync.Mutex
	known  map[[sha256.Size]byte]verdict // by the sum of the token
}

// verdict is whether whoever has a token may get /metrics.
type verdict struct {
	may   bool
	until time.Time
}

func (v *reviewer) lets(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			unauthorized(w)
			return
		}
		authenticated, may, err := v.review(r.Context(), token)
		switch {
		case err != nil:
			v.log.Warn("who asks for metrics can't be checked", "error", err)
			http.Error(w, "who asks can't be checked; the log says why", http.StatusServiceUnavailable)
		case !authenticated:
			unauthorized(w)
		case !may:
			http.Error(w, "needs get on the non-resource URL /metrics, as the ClusterRole stoker-metrics-reader has it", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "a bearer token of the management cluster is needed", http.StatusUnauthorized)
}

// review asks the API server whose a token is and whether they may get /metrics. Errors are those of [kube.Client.Create].
func (v *reviewer) review(ctx context.Context, token string) (authenticated, may bool, err error) {
	sum := sha256.Sum256([]byte(token))
	if known, ok := v.recall(sum); ok {
		return true, known, nil
	}
	v.asking.Lock()
	defer v.asking.Unlock()
	if known, ok := v.recall(sum); ok {
		return true, known, nil
	}
	who := &authenticationv1.TokenReview{TypeMeta: kube.TokenReviews.TypeMeta(), Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := v.kube.Create(ctx, kube.TokenReviews, who); err != nil || !who.Status.Authenticated {
		return false, false, err
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range who.Status.User.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access := &authorizationv1.SubjectAccessReview{TypeMeta: kube.SubjectAccessReviews.TypeMeta(), Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Status.User.Username, UID: who.Status.User.UID, Groups: who.Status.User.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	if err := v.kube.Create(ctx, kube.SubjectAccessReviews, access); err != nil {
		return false, false, err
	}
	v.note(sum, access.Status.Allowed)
	return true, access.Status.Allowed, nil
}

func (v *reviewer) recall(sum [sha256.Size]byte) (may, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.known[sum]
	return known.may, ok && time.Now().Before(known.until)
}

func (v *reviewer) note(sum [sha256.Size]byte, may bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxKnown {
		clear(v.known)
	}
	v.known[sum] = verdict{may, time.Now().Add(reviewFor)}
}
