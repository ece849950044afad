package v1alpha1_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
)

func TestExamplesOfTheAPIServersSettingsAreAccepted(t *testing.T) {
	t.Parallel()

	page := readFile(t, filepath.Join("..", "..", "..", "docs", "apiserver.md"))
	examples := regexp.MustCompile("(?s)```yaml\n(spec:.*?)```").FindAllSubmatch(page, -1)
	if len(examples) < 3 {
		t.Fatalf("%d examples", len(examples))
	}

	for _, example := range examples {
		var typed v1alpha1.TenantControlPlane
		if err := yaml.UnmarshalStrict(example[1], &typed); err != nil {
			t.Errorf("%s\n%v", example[1], err)
		}

		object := ruletest.Object(v1alpha1.TenantControlPlaneKind, string(example[1]))
		if refused := loadDefinition(t, tenantCRD).Admit(t, object, nil); len(refused) != 0 {
			t.Errorf("%s\nrefused: %s", example[1], refused)
		}
	}
}
