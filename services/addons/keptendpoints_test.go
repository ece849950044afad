package addons

import (
	"encoding/json"
	"net/http"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
)

const endpointsOfKubernetes = "/api/v1/namespaces/default/endpoints/kubernetes"

// TestAnAPIServerThatEndsLeavesTheServiceKubernetesItsAddress ends one of a tenant's API servers as a rollout does, with and without
// the policy. What is left is read by another one that writes no Endpoints itself.
func TestAnAPIServerThatEndsLeavesTheServiceKubernetesItsAddress(t *testing.T) {
	t.Parallel()
	tn := startTenant(t)
	reader := tn.another(t, map[string]string{"endpoint-reconciler-type": "none"})

	addresses := func() (all []string) {
		t.Helper()
		var o corev1.Endpoints //nolint:staticcheck // what an API server writes
		data, err := reader.rest.Get().AbsPath(endpointsOfKubernetes).Do(t.Context()).Raw()
		if err == nil {
			err = json.Unmarshal(data, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range o.Subsets {
			for _, a := range s.Addresses {
				all = append(all, a.IP)
			}
		}
		return all
	}
	// emptied tries to empty them without doing it.
	emptied := func(user string) error {
		return tn.rest.Verb(http.MethodPatch).AbsPath(endpointsOfKubernetes).Param("dryRun", "All").SetHeader("Content-Type", merge).
			SetHeader("Impersonate-User", user).SetHeader("Impersonate-Group", "system:masters").Body([]byte(`{"subsets":null}`)).Do(t.Context()).Error()
	}

	poll.True(t, "there is an address", func() bool { return len(addresses()) == 1 })
	tn.server.Stop(syscall.SIGTERM)
	if left := addresses(); len(left) > 0 {
		t.Errorf("without the policy %v are left: the API server doesn't do any more what the policy is for", left)
	}
	tn.restart(t)
	poll.True(t, "the address is back", func() bool { return len(addresses()) == 1 })

	tn.apply(t)
	poll.True(t, "the policy is in force", func() bool { return apierrors.IsForbidden(emptied("system:apiserver")) })
	if err := emptied("somebody"); err != nil {
		t.Errorf("refused for another user: %v", err)
	}
	tn.server.Stop(syscall.SIGTERM)
	if left := addresses(); len(left) != 1 || left[0] != "192.0.2.1" {
		t.Errorf("%v are left", left)
	}
}
