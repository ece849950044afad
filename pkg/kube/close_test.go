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
