package kube

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/fence"
)

// fenced lets no write of a replica that lost its lease onto the wire, and has no write repeated behind the caller's back. It is the
// outermost transport.
type fenced struct{ http.RoundTripper }

// RoundTrip sends the request; [fence.ErrFenced] for a write that may not be sent.
func (f fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return f.RoundTripper.RoundTrip(req)
	}
	if err := fence.Check(req.Context()); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	once := *req
	once.GetBody = nil // without it, the transport can't send the body a second time
	return f.RoundTripper.RoundTrip(&once)
}

// WrappedRoundTripper lets client-go find the transport below.
func (f fenced) WrappedRoundTripper() http.RoundTripper { return f.RoundTripper }

// CloseIdleConnections makes http.Client.CloseIdleConnections reach the transport, below what client-go wraps it in.
func (f fenced) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(f.RoundTripper) }

// tenantConfig is the configuration for a tenant's API server: what a kubeconfig holds, and a transport of its own. Of the
// kubeconfig, only addresses, certificates and keys inside it are used: whoever may write the Secret that it comes from can't make
// this process run a command, or send what is in a file.
func tenantConfig(kubeconfig []byte) (*rest.Config, error) {
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
	cfg.Transport, err = tenantTransport(cfg)
	if err != nil {
		return nil, fmt.Errorf("tenant kubeconfig: %w", err)
	}
	cfg.TLSClientConfig = rest.TLSClientConfig{}
	return cfg, nil
}

// tenantTransport is one HTTP/2 connection with small buffers: a replica has as many as it has tenants.
func tenantTransport(cfg *rest.Config) (*http.Transport, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     tls,
		TLSHandshakeTimeout: 5 * time.Second,
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
