package workload

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestHashesOf(t *testing.T) {
	for inputs, want := range map[string]state.ObjectHashes{
		"":        {},
		"a/b/c":   {Service: "a", Ingress: "b", Deployment: "c"},
		"a//c/":   {Service: "a", Deployment: "c"},
		"a/b/c/d": {Service: "a", Ingress: "b", Deployment: "c", Route: "d"},
	} {
		if got := hashesOf(inputs); got != want {
			t.Errorf("%q: got %+v, want %+v", inputs, got, want)
		}
	}
}
