package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ForCluster makes a client of another cluster's API server from a kubeconfig that somebody else wrote; all it does shares one HTTP/2
// connection, and an outage is [intent.Unavailable] without a dependency. It doesn't connect yet.
//
// The kubeconfig must hold all that it needs: an https server, its authority, and a token or a certificate with its key. What would have
// this process run a command, read a file, go through a proxy, or trust any server is refused with the field's name: whoever may write
// the kubeconfig would else reach what only this process may.
func ForCluster(kubeconfig []byte, o Options) (*Client, error) {
	cfg, err := clusterConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	c, err := New(cfg, o)
	if err != nil {
		return nil, err
	}
	c.dependency, c.opening = "", make(chan struct{}, 1)
	return c, nil
}

// CheckKubeconfig says whether a kubeconfig is one that [ForCluster] takes.
func CheckKubeconfig(kubeconfig []byte) error {
	_, err := selfContained(kubeconfig)
	return err
}

func clusterConfig(kubeconfig []byte) (*rest.Config, error) {
	cfg, err := selfContained(kubeconfig)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	transport, err := tenantTransport(cfg, onlyWay(server, cfg.ServerName))
	if err != nil {
		return nil, err
	}
	cfg.Transport, cfg.TLSClientConfig = limited{transport}, rest.TLSClientConfig{}
	return cfg, nil
}

// maxAnswer is how long the answer of another cluster may be, but that of a watch: 50,000 tenants' metadata.
const maxAnswer = 64 << 20

// limited takes no answer that is longer than maxAnswer: nobody vouches for the server.
type limited struct{ *http.Transport }

func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.Transport.RoundTrip(req)
	if err == nil && verbOf(req) != "watch" {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// selfContained is the configuration in a kubeconfig that holds all that it needs.
func selfContained(kubeconfig []byte) (*rest.Config, error) {
	all, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	current := all.Contexts[all.CurrentContext]
	if current == nil {
		return nil, fmt.Errorf("current-context %q is none of its contexts", all.CurrentContext)
	}
	cluster, user := all.Clusters[current.Cluster], all.AuthInfos[current.AuthInfo]
	switch {
	case cluster == nil:
		return nil, fmt.Errorf("context %q: its cluster %q is not there", all.CurrentContext, current.Cluster)
	case user == nil:
		return nil, fmt.Errorf("context %q: its user %q is not there", all.CurrentContext, current.AuthInfo)
	}
	if field := refusedField(cluster, user); field != "" {
		return nil, fmt.Errorf("%s is refused: a kubeconfig must hold the authority, and a token or a certificate with its key, in itself", field)
	}
	cfg := &rest.Config{Host: cluster.Server, BearerToken: user.Token, TLSClientConfig: rest.TLSClientConfig{
		CAData: cluster.CertificateAuthorityData, CertData: user.ClientCertificateData, KeyData: user.ClientKeyData, ServerName: cluster.TLSServerName,
	}}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil:
		return nil, errors.New("clusters[].cluster.server: must be an https URL, without a user")
	case len(cfg.CAData) == 0:
		return nil, errors.New("clusters[].cluster.certificate-authority-data: must be given")
	}
	return cfg, credentials(cfg)
}

// refusedField is the first field of a kubeconfig that isn't about this connection alone; empty for none.
func refusedField(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) string {
	for _, f := range []struct {
		field string
		is    bool
	}{
		{"users[].user.exec", u.Exec != nil},
		{"users[].user.auth-provider", u.AuthProvider != nil},
		{"users[].user.tokenFile", u.TokenFile != ""},
		{"users[].user.client-certificate", u.ClientCertificate != ""},
		{"users[].user.client-key", u.ClientKey != ""},
		{"users[].user.username", u.Username != "" || u.Password != ""},
		{"users[].user.as", u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups)+len(u.ImpersonateUserExtra) > 0},
		{"clusters[].cluster.certificate-authority", c.CertificateAuthority != ""},
		{"clusters[].cluster.insecure-skip-tls-verify", c.InsecureSkipTLSVerify},
		{"clusters[].cluster.proxy-url", c.ProxyURL != ""},
	} {
		if f.is {
			return f.field
		}
	}
	return ""
}

// credentials says what is wrong with those of a configuration.
func credentials(cfg *rest.Config) error {
	if cfg.BearerToken != "" && len(cfg.CertData)+len(cfg.KeyData) == 0 {
		return nil
	}
	if len(cfg.CertData) == 0 || len(cfg.KeyData) == 0 {
		return errors.New("users[].user: must have token, or client-certificate-data and client-key-data")
	}
	pair, err := tls.X509KeyPair(cfg.CertData, cfg.KeyData)
	if err != nil {
		return fmt.Errorf("users[].user.client-certificate-data: %w", err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fmt.Errorf("users[].user.client-certificate-data: %w", err)
	}
	if time.Now().After(leaf.NotAfter) {
		return fmt.Errorf("users[].user.client-certificate-data: the certificate ended at %s; write a new kubeconfig", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
