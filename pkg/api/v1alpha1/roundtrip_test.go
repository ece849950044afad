package v1alpha1_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/crdtest"
)

func TestObjectsRoundTrip(t *testing.T) {
	t.Parallel()

	for file, object := range map[string]runtime.Object{
		"tenantcontrolplane.yaml":  &v1alpha1.TenantControlPlane{},
		"datastore.yaml":           &v1alpha1.DataStore{},
		"kubeconfiggenerator.yaml": &v1alpha1.KubeconfigGenerator{},
	} {
		t.Run(file+" is read strictly, sets every field, and is written as it was", func(t *testing.T) {
			t.Parallel()

			given := readFile(t, filepath.Join("testdata", file))
			if err := yaml.UnmarshalStrict(given, object); err != nil {
				t.Fatal(err)
			}

			for _, path := range crdtest.Unset(object) {
				t.Errorf("%s is not set in the file", path)
			}

			written, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(crdtest.Decode(t, given), crdtest.Decode(t, written)); diff != "" {
				t.Errorf("changed (-given +written):\n%s", diff)
			}

			if diff := cmp.Diff(object, object.DeepCopyObject()); diff != "" {
				t.Errorf("a copy differs (-object +copy):\n%s", diff)
			}
		})
	}

	t.Run("an object that sets nothing but what it must is written without empty fields", func(t *testing.T) {
		t.Parallel()

		const given = `apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata:
  name: demo
spec:
  controlPlane:
    service:
      serviceType: LoadBalancer
  kubernetes:
    version: v1.36.3
`

		var tcp v1alpha1.TenantControlPlane
		if err := yaml.UnmarshalStrict([]byte(given), &tcp); err != nil {
			t.Fatal(err)
		}

		written, err := yaml.Marshal(tcp)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(given, string(written)); diff != "" {
			t.Errorf("changed (-given +written):\n%s", diff)
		}
	})
}

func TestKamajisFields(t *testing.T) {
	t.Parallel()

	files := map[string]string{
		v1alpha1.TenantControlPlaneKind: "tenantcontrolplane.yaml", v1alpha1.DataStoreKind: "datastore.yaml",
		v1alpha1.KubeconfigGeneratorKind: "kubeconfiggenerator.yaml",
	}
	definitions := map[string]string{
		v1alpha1.TenantControlPlaneKind: tenantCRD, v1alpha1.DataStoreKind: dataStoreCRD, v1alpha1.KubeconfigGeneratorKind: generatorCRD,
	}

	fields := crdtest.Fields(readFile(t, filepath.Join("testdata", "kamaji-fields.txt")))

	for kind, file := range files {
		t.Run("each of a "+kind+" is in the definition and in the object that is read and written", func(t *testing.T) {
			t.Parallel()

			schema, object := loadDefinition(t, definitions[kind]).Structural, crdtest.Decode(t, readFile(t, filepath.Join("testdata", file)))

			for _, path := range fields[kind] {
				if !crdtest.Defined(schema, path) {
					t.Errorf("%s is not in the definition", path)
				}

				if !crdtest.Present(object, path) {
					t.Errorf("%s is not in the object", path)
				}
			}

			if len(fields[kind]) == 0 {
				t.Error("no fields")
			}
		})
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return content
}
