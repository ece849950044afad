package rules

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestMetricsAreForThoseWhoMayGetThem serves a service's port with TLS and --metrics-auth, with that service's own account.
func TestMetricsAreForThoseWhoMayGetThem(t *testing.T) {
	cfg := e.Stack.Service(name.ServiceStatus, "metrics")
	address := e.Local.Block().Management().String() // where other tests take no ports
	cfg.MetricsCert, cfg.MetricsKey = certificate(t, address)
	cfg.MetricsAuth = true
	free, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTP = free.Addr().String()
	_ = free.Close()
	clients, err := service.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer clients.Close()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- clients.Serve(ctx, cfg) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	https := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots(t, cfg.MetricsCert)}}}
	get := func(path, token string) (code int, body string, err error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+cfg.HTTP+path, nil)
		if err != nil {
			return 0, "", err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := https.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(data), err
	}
	env.Eventually(t, "the port to be open", func() error {
		_, _, err := get("/livez", "")
		return err
	})
	prometheus, stranger := tokenOf(t, "prometheus", true), tokenOf(t, "stranger", false)
	for what, test := range map[string]struct {
		path, token string
		code        int
	}{
		"without a token":                        {"/metrics", "", http.StatusUnauthorized},
		"with a token of nobody":                 {"/metrics", "a.b.c", http.StatusUnauthorized},
		"with a token of somebody who may not":   {"/metrics", stranger, http.StatusForbidden},
		"probes need no token":                   {"/livez", "", http.StatusOK},
		"what is ready and what isn't, likewise": {"/readyz", "", 0},
	} {
		t.Run(what, func(t *testing.T) {
			code, body, err := get(test.path, test.token)
			if err != nil || test.code != 0 && code != test.code || strings.Contains(body, "stoker_build_info") {
				t.Errorf("%d %v: %s", code, err, body)
			}
		})
	}
	t.Run("with a token of somebody who may", func(t *testing.T) {
		env.Eventually(t, "the API server to know that prometheus may", func() error {
			code, body, err := get("/metrics", prometheus)
			if err == nil && (code != http.StatusOK || !strings.Contains(body, "stoker_build_info")) {
				err = fmt.Errorf("%d: %s", code, body)
			}
			return err
		})
	})
	t.Run("not without TLS", func(t *testing.T) {
		plain := cfg
		plain.MetricsCert, plain.MetricsKey = "", ""
		if err := clients.Serve(ctx, plain); err == nil || !strings.Contains(err.Error(), "--metrics-tls-cert") {
			t.Errorf("it says %v", err)
		}
	})
}

// tokenOf is a token of an account that may get metrics or not.
func tokenOf(t *testing.T, account string, may bool) string {
	t.Helper()
	_, c := admin(t)
	const ns = metav1.NamespaceDefault
	if _, err := c.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if may {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: ns}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "stoker-metrics-reader"},
		}
		if _, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	made, err := c.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

// certificate makes a certificate of an address by itself.
func certificate(t *testing.T, address string) (cert, key string) {
	t.Helper()
	now := time.Now()
	pair, err := pki.Issue(&x509.Certificate{
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(address)}, IsCA: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, content := range map[string][]byte{cert: pair.Cert, key: pair.Key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func roots(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	return pool
}
