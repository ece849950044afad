package e2e

import (
	"errors"
	"os"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

var errNotYet = errors.New("not yet")

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// finalizers sets a tenant's finalizers, as kubectl would.
func finalizers(t testing.TB, key events.Key, all ...string) {
	t.Helper()
	patch := map[string]any{"metadata": map[string]any{"finalizers": all}}
	if err := e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, patch, nil); err != nil {
		t.Fatal(err)
	}
}
