package v1alpha1_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestObjectsRoundTrip(t *testing.T) {
	t.Parallel()

	for file, object := range map[string]runtime.Object{
		"tenantcontrolplane.yaml": &v1alpha1.TenantControlPlane{},
		"datastore.yaml":          &v1alpha1.DataStore{},
	} {
		t.Run(file+" is read strictly, sets every field, and is written as it was", func(t *testing.T) {
			t.Parallel()

			given := readFile(t, filepath.Join("testdata", file))
			if err := yaml.UnmarshalStrict(given, object); err != nil {
				t.Fatal(err)
			}

			for _, path := range unset(reflect.ValueOf(object).Elem(), "") {
				t.Errorf("%s is not set in the file", path)
			}

			written, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(decode(t, given), decode(t, written)); diff != "" {
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

// unset returns the paths of the fields that have their zero value, of the types of this API; those of Kubernetes have
// tests of their own.
func unset(value reflect.Value, path string) []string {
	switch value.Kind() {
	case reflect.Pointer:
		return unset(value.Elem(), path)
	case reflect.Slice:
		// The last element of each list in the files sets all fields, even those that exclude each other.
		return unset(value.Index(value.Len()-1), path+"[]")
	case reflect.Struct:
		if !strings.HasSuffix(value.Type().PkgPath(), "/pkg/api/v1alpha1") {
			return nil
		}

		var paths []string

		for i := range value.NumField() {
			field := path + "." + value.Type().Field(i).Name

			if value.Field(i).IsZero() {
				paths = append(paths, field)

				continue
			}

			paths = append(paths, unset(value.Field(i), field)...)
		}

		return paths
	default:
		return nil
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

func decode(t *testing.T, content []byte) map[string]any {
	t.Helper()

	asJSON, err := yaml.YAMLToJSON(content)
	if err != nil {
		t.Fatal(err)
	}

	// Kubernetes' decoder keeps whole numbers whole, as CEL rules need them.
	var object map[string]any
	if err := json.Unmarshal(asJSON, &object); err != nil {
		t.Fatal(err)
	}

	return object
}
