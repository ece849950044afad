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
	"github.com/stoker-k8s/stoker/pkg/metric"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

func TestATakeoverAsksForTheNamesOfItsOwnTenantsAlone(t *testing.T) {
	var accept string
	var selectors []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept, selectors = r.Header.Get("Accept"), append(selectors, r.URL.Query().Get("labelSelector"))
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
	s := &svc{kube: k, metrics: newMetrics(&metric.Catalogue{}, &metric.Catalogue{}, false), letters: &letters{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var woken []string
	held := partition.Of(3, 1)
	err = s.watch(ctx, held, func(key events.Key, _ loop.Wake) {
		if woken = append(woken, key.String()); len(woken) == 2 {
			cancel()
			return
		}
		held.Hold([]int{1, 5})
	})
	if err != nil || !slices.Equal(woken, []string{"team/demo", "team/demo"}) {
		t.Errorf("woken %q, %v", woken, err)
	}
	if !strings.HasPrefix(accept, "application/json;as=PartialObjectMetadataList") {
		t.Errorf("asked for %q", accept)
	}
	if want := []string{name.LabelPartition + " in (1,3)", name.LabelPartition + " in (5)"}; !slices.Equal(selectors, want) {
		t.Errorf("asked for tenants of %q", selectors)
	}
}
