package robustness

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Gate is one replica's way to the API server: an HTTPS proxy that can answer in the server's place, as a server does whose etcd is
// away, and behind a Link that can delay, hold up and cut. It is safe for concurrent use.
type Gate struct {
	*Link
	server *httptest.Server
	ca     []byte

	mu     sync.Mutex
	answer int // the status that requests are answered with instead; 0: none
}

// NewGate opens a way to the API server that a client configuration reaches. Requests go on from the address from, which the audit
// log then shows as theirs.
func NewGate(listen, from string, api *rest.Config) (*Gate, error) {
	target, err := url.Parse(api.Host)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(api.CAData)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	g := &Gate{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1                    // watches
	proxy.ErrorLog = log.New(io.Discard, "", 0) // cut connections are what this is for
	proxy.Transport = &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
	}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler) // the client sees a cut connection, as it would without the proxy
	}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		code := g.answer
		g.mu.Unlock()
		if code != 0 {
			refuse(w, code)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	g.server.EnableHTTP2 = true
	g.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	g.server.StartTLS()
	g.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	g.Link, err = NewLink(listen, g.server.Listener.Addr().String())
	if err != nil {
		g.server.Close()
		return nil, err
	}
	return g, nil
}

// refuse answers as the API server does when it can't reach its etcd (500) or has too much to do (429).
func refuse(w http.ResponseWriter, code int) {
	message, reason := "etcdserver: request timed out", "InternalError"
	if code == http.StatusTooManyRequests {
		message, reason = "too many requests, please try again later", "TooManyRequests"
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}

// Answer has every request answered with a status until Answer(0).
func (g *Gate) Answer(code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = code
}

// Close ends the way.
func (g *Gate) Close() {
	g.Link.Close()
	g.server.CloseClientConnections()
	g.server.Close()
}

// Kubeconfig writes a copy of a kubeconfig that leads through the gate.
func (g *Gate) Kubeconfig(from, to string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, c := range config.Clusters {
		*c = clientcmdapi.Cluster{Server: "https://" + g.Address(), CertificateAuthorityData: g.ca, TLSServerName: "example.com"}
	}
	return clientcmd.WriteToFile(*config, to)
}
