package env

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// TestTap kills a process before and after a write that it sends to an API server.
func TestTap(t *testing.T) {
	for what, c := range map[string]struct {
		set  func(*Tap, *Process, func(Message) bool) <-chan struct{}
		made int
	}{
		"killed before a write, which is not made": {(*Tap).KillBefore, 0},
		"killed after a write, which is made":      {(*Tap).KillAfter, 1},
	} {
		t.Run(what, func(t *testing.T) {
			_, p := process(t, living(":"))
			logged(t, p, "started")
			made := 0
			api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					made++
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x-ca"}}`))
			}))
			defer api.Close()
			file := KubeconfigOf(t, api)
			tap := newTap(t.TempDir())
			if err := tap.open(file, "127.0.0.1:1"); err != nil {
				t.Fatal(err)
			}
			defer tap.close()
			k, err := kube.Connect(tap.kubeconfig, kube.Options{FieldManager: "test"})
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			killed := c.set(tap, p, func(m Message) bool { return m.Write && About("x")(m) })
			var o metav1.PartialObjectMetadata
			if err := k.Get(t.Context(), kube.Secrets, "default", "x-ca", &o); err != nil {
				t.Fatal(err)
			}
			if _, err := k.Delete(t.Context(), kube.Secrets, "default", "x-ca", metav1.DeleteOptions{}); err == nil {
				t.Error("the process was told that the write is made")
			}
			<-killed
			if p.runs() {
				t.Error("the process runs")
			}
			if made != c.made {
				t.Errorf("the server made %d writes, want %d", made, c.made)
			}
			var all []string
			for _, m := range tap.Messages(0) {
				all = append(all, m.What)
			}
			if want := "GET /api/v1/namespaces/default/secrets/x-ca, DELETE /api/v1/namespaces/default/secrets/x-ca"; strings.Join(all, ", ") != want {
				t.Errorf("the tap saw %q", all)
			}
		})
	}
}
