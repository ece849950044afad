package status

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestATakeoverAsksForTheNamesOfItsOwnTenantsAlone(t *testing.T) {
	var accept, selector string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept, selector = r.Header.Get("Accept"), r.URL.Query().Get("labelSelector")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.PartialObjectMetadataList{
			ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "demo"}}},
		})
	}))
	t.Cleanup(server.Close)
	k, err := kube.New(&rest.Config{Host: server.URL}, kube.Options{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	s := &svc{kube: k, metrics: newMetrics(nil)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var woken []string
	err = s.watch(ctx, []int{3, 1}, func(key events.Key, _ loop.Wake) {
		woken = append(woken, key.String())
		cancel()
	})
	if err != nil || !slices.Equal(woken, []string{"team/demo"}) {
		t.Errorf("woken %q, %v", woken, err)
	}
	if !strings.HasPrefix(accept, "application/json;as=PartialObjectMetadataList") || selector != name.LabelPartition+" in (1,3)" {
		t.Errorf("asked for %q of %q", accept, selector)
	}
}
