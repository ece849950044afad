package addons

import (
	"maps"
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

// TestHandlers counts the objects that are measured under the name of each of Kamaji's handlers.
func TestHandlers(t *testing.T) {
	objects, err := Render(withTunnel())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, o := range objects {
		got[handlerOf(RefOf(o))]++
	}
	want := map[string]int{
		metric.HandlerUploadConfigKubeadm: 3, // a ConfigMap, and who may read it
		metric.HandlerUploadConfigKubelet: 3,
		metric.HandlerBootstrapToken:      9, // cluster-info, and what nodes may that join
		metric.HandlerClusterAdminRBAC:    1,
		metric.HandlerCoreDNS:             6,
		metric.HandlerKubeProxy:           6,
		"":                                2, // what keeps the Service kubernetes leading somewhere: Kamaji has none

		metric.HandlerKonnectivityAgent: 1, metric.HandlerKonnectivityServiceAccount: 1, metric.HandlerKonnectivityClusterRoleBinding: 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	delete(want, "")
	if known := metric.Handlers(name.ServiceAddons); !slices.Equal(slices.Sorted(maps.Keys(want)), slices.Sorted(slices.Values(known))) {
		t.Errorf("measured are %v", known)
	}
}

func withTunnel() Input {
	in := input()
	in.Konnectivity = &Konnectivity{Host: "203.0.113.7", Port: 8132, Image: "agent:v1"}
	return in
}
