package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/fence"
)

// fenced lets no write of a replica that lost its lease onto the wire, and has no write repeated behind the caller's back. It is the
// outermost transport.
type fenced struct {
	http.RoundTripper
	told RequestFunc
}

// RequestFunc is told of a request when its answer begins, or when there is none. It is called from several goroutines.
//   - verb is get, list, watch, create, update, patch, apply or delete;
//   - code is the answer's, 0 without one;
//   - took is the time until then.
type RequestFunc func(verb string, code int, took time.Duration)

// RoundTrip sends the request; [fence.ErrFenced] for a write that may not be sent.
func (f fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return f.send(req)
	}
	if err := fence.Check(req.Context()); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	once := *req
	once.GetBody = nil // without it, the transport can't send the body a second time
	return f.send(&once)
}

// send sends a request and tells of it.
func (f fenced) send(req *http.Request) (*http.Response, error) {
	if f.told == nil {
		return f.RoundTripper.RoundTrip(req)
	}
	began := time.Now()
	resp, err := f.RoundTripper.RoundTrip(req)
	code := 0
	if err == nil {
		code = resp.StatusCode
	}
	f.told(verbOf(req), code, time.Since(began))
	return resp, err
}

// verbOf names a request in the words of [RequestFunc].
func verbOf(req *http.Request) string {
	switch req.Method {
	case http.MethodGet:
		if req.URL.Query().Has("watch") {
			return "watch"
		}
		if isCollection(req.URL.Path) {
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		if req.Header.Get("Content-Type") == string(types.ApplyPatchType) {
			return "apply"
		}
		return "patch"
	}
	return "delete"
}

// isCollection reports whether a path that is read is that of several objects: below group and version it names a resource without
// an object.
func isCollection(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return false
	}
	return len(parts)%2 == 1
}

// WrappedRoundTripper lets client-go find the transport below.
func (f fenced) WrappedRoundTripper() http.RoundTripper { return f.RoundTripper }

// CloseIdleConnections makes http.Client.CloseIdleConnections reach the transport, below what client-go wraps it in.
func (f fenced) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(f.RoundTripper) }

// tenantConfig is the configuration for a tenant's API server: what a kubeconfig holds, and a transport of its own. Of the
// kubeconfig, only addresses, certificates and keys inside it are used: whoever may write the Secret that it comes from can't make
// this process run a command, or send what is in a file.
func tenantConfig(kubeconfig []byte, ways *Ways) (*rest.Config, error) {
	all, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("tenant kubeconfig: %w", err)
	}
	tls := rest.TLSClientConfig{
		CAData: all.CAData, CertData: all.CertData, KeyData: all.KeyData, ServerName: all.TLSClientConfig.ServerName,
	}
	cfg := &rest.Config{Host: all.Host, TLSClientConfig: tls}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "":
		return nil, fmt.Errorf("tenant kubeconfig: server %q is no https URL", all.Host)
	case len(tls.CAData) == 0:
		return nil, errors.New("tenant kubeconfig: no CA certificate in it")
	case len(tls.CertData) == 0 || len(tls.KeyData) == 0:
		return nil, errors.New("tenant kubeconfig: no client certificate and key in it")
	}
	if ways == nil {
		ways = onlyWay(server, tls.ServerName)
	}
	cfg.Transport, err = tenantTransport(cfg, ways)
	if err != nil {
		return nil, fmt.Errorf("tenant kubeconfig: %w", err)
	}
	cfg.TLSClientConfig = rest.TLSClientConfig{}
	return cfg, nil
}

// tenantTransport is one HTTP/2 connection with small buffers: a replica has as many as it has tenants.
func tenantTransport(cfg *rest.Config, ways *Ways) (*http.Transport, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	tls.NextProtos = []string{"h2", "http/1.1"}
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return ways.dial(ctx, tls) },
		// A server that has just started may leave a watch without an answer.
		ResponseHeaderTimeout: requestTimeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          2,
		IdleConnTimeout:       90 * time.Second,
		WriteBufferSize:       2 << 10,
		ReadBufferSize:        2 << 10,
		DisableCompression:    true, // answers are small, and compressors are not
		HTTP2: &http.HTTP2Config{
			// Watches are quiet; a ping tells a quiet connection from a dead one.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     10 * time.Second,
			// Frames arrive one event at a time; the default would keep a buffer of a megabyte's credit on each stream.
			MaxReceiveBufferPerStream:     64 << 10,
			MaxReceiveBufferPerConnection: 1 << 20,
		},
	}, nil
}
