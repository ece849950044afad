package kube

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// A client that is closed has no connection left, whatever client-go wraps the transport in: else pods that stop would be
// asked by those who began long ago.
func TestCloseEndsConnections(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	k, err := New(&rest.Config{Host: server.URL, BearerToken: "x", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, Options{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(want int32) {
		t.Helper()
		if err := k.Get(t.Context(), Namespaces, "", "default", &struct{}{}); err != nil {
			t.Fatal(err)
		}
		if n := opened.Load(); n != want {
			t.Errorf("%d connections, want %d", n, want)
		}
	}
	ask(1)
	ask(1)
	k.Close()
	ask(2)
	k.Close()
}

// Whoever may write the Secret that holds a tenant's kubeconfig must not make this process run a command or send a file.
func TestForTenantTakesNothingFromOutsideTheKubeconfig(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
	ca := "Y2E=" // no certificate; it isn't looked at before
	for what, kubeconfig := range map[string]string{
		"a command":  head + "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: " + ca + "}}]\nusers: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, interactiveMode: Never}}}]\n",
		"a file":     head + "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: " + ca + "}}]\nusers: [{name: u, user: {client-certificate: /etc/passwd, client-key: /etc/passwd}}]\n",
		"a token":    head + "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: " + ca + "}}]\nusers: [{name: u, user: {tokenFile: /etc/passwd}}]\n",
		"plain HTTP": head + "clusters: [{name: c, cluster: {server: 'http://x', certificate-authority-data: " + ca + "}}]\nusers: [{name: u, user: {token: x}}]\n",
	} {
		t.Run(what, func(t *testing.T) {
			if _, err := ForTenant([]byte(kubeconfig), Options{FieldManager: "test"}); err == nil {
				t.Error("taken")
			} else {
				t.Log(err)
			}
		})
	}
}
