package robustness

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

func TestAGateLetsThroughAnswersAndCuts(t *testing.T) {
	from := make(chan string, 1)
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from <- r.RemoteAddr
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}`))
	}))
	defer api.Close()
	file, through := env.KubeconfigOf(t, api), filepath.Join(t.TempDir(), "through")
	gate, err := NewGate("127.0.0.1:0", "127.0.0.9", file)
	if err != nil {
		t.Fatal(err)
	}
	if err := gate.Kubeconfig(through); err != nil {
		t.Fatal(err)
	}
	k, err := kube.Connect(through, kube.Options{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	get := func() error { return k.Get(t.Context(), kube.Secrets, "default", "x", &metav1.PartialObjectMetadata{}) }
	if err := get(); err != nil {
		t.Fatal(err)
	}
	if host := (<-from)[:len("127.0.0.9:")]; host != "127.0.0.9:" {
		t.Errorf("the request came from %s", host)
	}
	gate.Answer(http.StatusInternalServerError)
	if err := get(); !apierrors.IsInternalError(err) || len(from) > 0 {
		t.Errorf("answered in the server's place: %v", err)
	}
	gate.Answer(0)
	gate.Close()
	if err := get(); !kube.IsAway(err) || len(from) > 0 {
		t.Errorf("after its end: %v", err)
	}
}
