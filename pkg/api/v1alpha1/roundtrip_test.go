package v1alpha1_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
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

func TestKamajisFields(t *testing.T) {
	t.Parallel()

	files := map[string]string{
		v1alpha1.TenantControlPlaneKind: "tenantcontrolplane.yaml", v1alpha1.DataStoreKind: "datastore.yaml",
		v1alpha1.KubeconfigGeneratorKind: "kubeconfiggenerator.yaml",
	}
	definitions := map[string]string{
		v1alpha1.TenantControlPlaneKind: tenantCRD, v1alpha1.DataStoreKind: dataStoreCRD, v1alpha1.KubeconfigGeneratorKind: generatorCRD,
	}

	fields := map[string][]string{}

	for line := range strings.Lines(string(readFile(t, filepath.Join("testdata", "kamaji-fields.txt")))) {
		if kind, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok && kind != "#" {
			fields[kind] = append(fields[kind], path)
		}
	}

	for kind, file := range files {
		t.Run("each of a "+kind+" is in the definition and in the object that is read and written", func(t *testing.T) {
			t.Parallel()

			schema, object := loadDefinition(t, definitions[kind]).structural, decode(t, readFile(t, filepath.Join("testdata", file)))

			for _, path := range fields[kind] {
				if !defined(schema, path) {
					t.Errorf("%s is not in the definition", path)
				}

				if !present(object, path) {
					t.Errorf("%s is not in the object", path)
				}
			}

			if len(fields[kind]) == 0 {
				t.Error("no fields")
			}
		})
	}
}

// step splits a path of kamaji-fields.txt: the first property, and what follows it, [] for a list's elements and {} for a
// map's values among it.
func step(path string) (name, rest string) {
	end := strings.IndexAny(path, ".[{")
	if end < 0 {
		return path, ""
	}

	return path[:end], strings.TrimPrefix(path[end:], ".")
}

func defined(s *structuralschema.Structural, path string) bool {
	switch {
	case path == "":
		return true
	case strings.HasPrefix(path, "[]"):
		return s.Items != nil && defined(s.Items, strings.TrimPrefix(path[2:], "."))
	case path == "{}":
		return s.AdditionalProperties != nil
	}

	name, rest := step(path)
	property, ok := s.Properties[name]

	return ok && defined(&property, rest)
}

func present(value any, path string) bool {
	if path == "" {
		return value != nil
	}

	if path == "{}" {
		m, _ := value.(map[string]any)

		return len(m) > 0
	}

	if rest, ok := strings.CutPrefix(path, "[]"); ok {
		list, _ := value.([]any)

		return slices.ContainsFunc(list, func(v any) bool { return present(v, strings.TrimPrefix(rest, ".")) })
	}

	name, rest := step(path)
	m, _ := value.(map[string]any)

	return m[name] != nil && present(m[name], rest)
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
