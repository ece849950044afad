package rules

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
)

// TestALowerVersionIsAcceptedIfItRuns: while an upgrade is under way, or when it was undone, the spec's version is not the one that runs.
func TestALowerVersionIsAcceptedIfItRuns(t *testing.T) {
	e.Service(t, name.ServiceIntake, "a")
	cluster(t)
	cfg, _ := admin(t)
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tenants := resource(d, v1alpha1.TenantControlPlaneKind)
	for runs, want := range map[string]map[string]bool{
		"":        {"v1.35.4": false},
		"v1.35.4": {"v1.35.4": true, "v1.35.3": false, "v1.34.9": false, "v1.36.9": true},
	} {
		o := ruletest.Object(v1alpha1.TenantControlPlaneKind, `spec: {kubernetes: {version: v1.36.3}}`)
		n := "lower" + strings.NewReplacer(".", "-").Replace(runs)
		o["metadata"].(map[string]any)["name"] = n
		if no := clientWriter(d)(t, v1alpha1.TenantControlPlaneKind, o); no != nil {
			t.Fatal(no)
		}
		if runs != "" {
			status := fmt.Sprintf(`{"status":{"kubernetesResources":{"version":{"version":%q}}}}`, runs)
			if _, err := tenants.Patch(t.Context(), n, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
		}
		for version, accepted := range want {
			patch := fmt.Sprintf(`{"spec":{"kubernetes":{"version":%q}}}`, version)
			_, err := tenants.Patch(t.Context(), n, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if (err == nil) != accepted || err != nil && !strings.Contains(err.Error(), "Kubernetes cannot go back to an earlier minor version") {
				t.Errorf("%q runs, %s is asked for: %v", runs, version, err)
			}
		}
	}
}
