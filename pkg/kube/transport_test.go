package kube

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Each request is told of by the verb that Kubernetes has for it, in the order in which they are sent here.
func TestRequestsAreToldOf(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"1"}}`))
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	var told []string
	watch, end := context.WithCancel(t.Context())
	k, err := New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, Options{
		FieldManager: "test", Requests: func(verb string, code int, took time.Duration) {
			told = append(told, fmt.Sprint(verb, " ", code))
			if verb == "watch" {
				end()
			}
			if took <= 0 {
				t.Errorf("%s took %s", verb, took)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, out := t.Context(), &metav1.PartialObjectMetadata{}
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}
	for _, send := range []func() error{
		func() error { return k.Get(ctx, Namespaces, "", "a", out) },
		func() error { return k.Get(ctx, TenantControlPlanes, "a", "b", out) },
		func() error { return k.List(ctx, TenantControlPlanes, "", "", out) },
		func() error { return k.List(ctx, Secrets, "a", "", out) },
		func() error { return k.Create(ctx, Secrets, meta) },
		func() error { return k.Apply(ctx, Secrets, meta) },
		func() error { return k.MergePatch(ctx, Secrets, "a", "b", map[string]any{}, nil) },
		func() error { _, err := k.Delete(ctx, Secrets, "a", "b", metav1.DeleteOptions{}); return err },
	} {
		_ = send()
	}
	_ = k.Watch(watch, Secrets, "a", "", func(Change) {})
	server.Close()
	_ = k.Get(ctx, Namespaces, "", "a", out)
	want := []string{"get 200", "get 200", "list 200", "list 200", "create 200", "apply 200", "patch 200", "delete 403", "list 200", "watch 200", "get 0"}
	if !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}
