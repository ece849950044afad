package env

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy is an HTTPS proxy to the API server of a management cluster. Where the way behind it breaks, so does the one before it.
type Proxy struct {
	server *httptest.Server
	config *clientcmdapi.Config
}

// NewProxy starts a proxy to the API server that a kubeconfig leads to. With a client certificate in that, whoever asks the proxy is who it
// names; else by the token of the request. Requests go on from the address from, or any if that is empty;
// with is what the proxy does with them beside handing them on.
func NewProxy(kubeconfig, from string, with func(server http.Handler) http.Handler) (*Proxy, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	api, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(api.Host)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(api.CAData)
	var own []tls.Certificate
	if err := rest.LoadTLSFiles(api); err != nil {
		return nil, err
	}
	if len(api.CertData) > 0 {
		pair, err := tls.X509KeyPair(api.CertData, api.KeyData)
		if err != nil {
			return nil, err
		}
		own = append(own, pair)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	quiet := log.New(io.Discard, "", 0) // cut connections are what this is for
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1 // watches
	proxy.ErrorLog = quiet
	proxy.Transport = &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: own},
	}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	p := &Proxy{httptest.NewUnstartedServer(with(proxy)), config}
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = quiet
	p.server.StartTLS()
	return p, nil
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.server.Listener.Addr().String() }

// Kubeconfig writes a copy of the kubeconfig that leads through the proxy, which is reached at an address.
func (p *Proxy) Kubeconfig(to, address string) error {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	for _, c := range p.config.Clusters {
		*c = clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: ca, TLSServerName: "example.com"}
	}
	return clientcmd.WriteToFile(*p.config, to)
}

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Between returns a kubeconfig that leads through a proxy to the API server of another one; with is what the proxy does with requests
// beside handing them on.
func Between(t testing.TB, kubeconfig string, with func(server http.Handler) http.Handler) string {
	t.Helper()
	p, err := NewProxy(kubeconfig, "", with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	through := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.Kubeconfig(through, p.Address()); err != nil {
		t.Fatal(err)
	}
	return through
}

// KubeconfigOf writes a kubeconfig that leads to a test's own server.
func KubeconfigOf(t testing.TB, server *httptest.Server) (file string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config.Clusters["x"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: ca}
	config.AuthInfos["x"] = &clientcmdapi.AuthInfo{Token: "x"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}
	config.CurrentContext = "x"
	file = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
