package status

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
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

func TestATakeoverWakesItsOwnTenantsAlone(t *testing.T) {
	var accept string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept = r.Header.Get("Accept")
		w.Header().Set("Content-Type", "application/json")
		all := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for i := range 100 {
			o := metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("t", i), Annotations: map[string]string{name.AnnotationDataStore: ""}}
			if i%10 == 0 {
				o.Name, o.Annotations = "not-taken-"+o.Name, nil
			}
			all.Items = append(all.Items, metav1.PartialObjectMetadata{ObjectMeta: o})
		}
		_ = json.NewEncoder(w).Encode(all)
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
	wanted, woken := map[int]int{}, map[int]int{}
	for i := range 100 {
		if key := events.Tenant("team", fmt.Sprint("t", i)); i%10 > 0 {
			wanted[key.Partition()]++
		}
	}
	held := partition.Of(3, 1)
	err = s.watch(ctx, held, func(key events.Key, _ loop.Wake) {
		if strings.HasPrefix(key.Name, "not-taken") {
			t.Errorf("woken %s", key)
		}
		switch woken[key.Partition()]++; {
		case woken[1] == wanted[1] && woken[3] == wanted[3] && woken[5] == 0:
			held.Hold([]int{1, 5})
		case woken[5] == wanted[5]:
			cancel()
		}
	})
	if want := map[int]int{1: wanted[1], 3: wanted[3], 5: wanted[5]}; err != nil || !maps.Equal(woken, want) || wanted[1]*wanted[3]*wanted[5] == 0 {
		t.Errorf("woken %v, not %v: %v", woken, want, err)
	}
	if !strings.HasPrefix(accept, "application/json;as=PartialObjectMetadataList") {
		t.Errorf("asked for %q", accept)
	}
}
