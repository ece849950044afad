package kube

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/stoker-k8s/stoker/pkg/pki"
)

func TestForClusterTakesWhatIsInAKubeconfigAlone(t *testing.T) {
	cert, key := selfSigned(t, time.Now().Add(time.Hour))
	for says, change := range map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"": func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {},
		"users[].user.exec is refused": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "touch", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		},
		"users[].user.tokenFile is refused":          func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = "/etc/passwd" },
		"users[].user.client-key is refused":         func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = "/etc/passwd" },
		"users[].user.client-certificate is refused": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = "/etc/passwd" },
		"users[].user.username is refused":           func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Username = "a" },
		"users[].user.as is refused":                 func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = "a" },
		"users[].user.auth-provider is refused": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		},
		"clusters[].cluster.certificate-authority is refused": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = "/ca" },
		"clusters[].cluster.insecure-skip-tls-verify is refused": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		},
		"clusters[].cluster.proxy-url is refused":         func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://p" },
		"cluster.server: must be an https URL, without":   func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "https://a:b@c" },
		`clusters[].cluster.server: must be an https URL`: func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "http://a" },
		"certificate-authority-data: must be":             func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthorityData = nil },
		"must have token":                                 func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = "" },
		"client-certificate-data: the certificate ended at": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = selfSigned(t, time.Now().Add(-time.Hour))
		},
		"client-certificate-data: tls": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = key, cert
		},
	} {
		t.Run(says, func(t *testing.T) {
			cluster := &clientcmdapi.Cluster{Server: "https://a:6443", CertificateAuthorityData: cert}
			user := &clientcmdapi.AuthInfo{Token: "t"}
			change(cluster, user)
			data, err := clientcmd.Write(clientcmdapi.Config{
				Clusters: map[string]*clientcmdapi.Cluster{"c": cluster}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
				Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
			})
			if err != nil {
				t.Fatal(err)
			}
			c, err := ForCluster(data, Options{FieldManager: "test"})
			if err == nil {
				c.Close()
			}
			if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%v", err)
			}
		})
	}
	for _, data := range []string{"", "a: [", "{}", "current-context: x"} {
		if _, err := ForCluster([]byte(data), Options{}); err == nil {
			t.Errorf("%q is taken", data)
		}
	}
}

// selfSigned is a certificate and its key, as PEM.
func selfSigned(t *testing.T, until time.Time) (cert, key []byte) {
	t.Helper()
	pair, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until, IsCA: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Cert, pair.Key
}
