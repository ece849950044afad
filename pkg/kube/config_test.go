package kube

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/fence"
)

// What libraries do by a client's configuration is bounded by a context that they don't know.
func TestConfigOfAClient(t *testing.T) {
	var asked, elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	hang := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/busy/one", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Query().Get("timeout") == "" {
			t.Error("the server isn't told how long it has")
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	mux.HandleFunc("/api/v1/moved/one", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	mux.HandleFunc("/api/v1/hanging/one", func(_ http.ResponseWriter, r *http.Request) {
		close(hang)
		<-r.Context().Done()
	})
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	var told atomic.Int32
	k, err := New(&rest.Config{Host: server.URL, BearerToken: "x", TLSClientConfig: rest.TLSClientConfig{CAData: ca}},
		Options{FieldManager: "test", Requests: func(string, int, time.Duration) { told.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var held atomic.Bool
	held.Store(true)
	ctx, end := context.WithCancel(fence.With(t.Context(), held.Load))
	defer end()
	client, err := dynamic.NewForConfig(k.Config(ctx))
	if err != nil {
		t.Fatal(err)
	}
	of := func(plural string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Version: "v1", Resource: plural})
	}
	if _, err := of("busy").Get(context.Background(), "one", metav1.GetOptions{}); err == nil || asked.Load() != 1 || told.Load() != 1 {
		t.Errorf("%v, asked %d times, told %d times", err, asked.Load(), told.Load())
	}
	if err := of("busy").Delete(context.Background(), "one", metav1.DeleteOptions{}); err == nil || asked.Load() != 2 {
		t.Errorf("%v, asked %d times", err, asked.Load())
	}
	if _, err := of("moved").Get(context.Background(), "one", metav1.GetOptions{}); err == nil || elsewhere.Load() != 0 {
		t.Errorf("%v; asked %d times elsewhere", err, elsewhere.Load())
	}
	held.Store(false)
	if err := of("busy").Delete(context.Background(), "one", metav1.DeleteOptions{}); !errors.Is(err, fence.ErrFenced) || asked.Load() != 2 {
		t.Errorf("fenced: %v, asked %d times", err, asked.Load())
	}
	go func() {
		<-hang
		end()
	}()
	if _, err := of("hanging").Get(context.Background(), "one", metav1.GetOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
}
