package controlplane_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/crdtest"
)

func TestObjectsRoundTrip(t *testing.T) {
	t.Parallel()

	for file, object := range map[string]runtime.Object{
		"kamajicontrolplane.yaml":         &controlplane.KamajiControlPlane{},
		"kamajicontrolplanetemplate.yaml": &controlplane.KamajiControlPlaneTemplate{},
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

	for given, object := range map[string]runtime.Object{
		`apiVersion: controlplane.cluster.x-k8s.io/v1alpha2
kind: KamajiControlPlane
metadata:
  name: demo
spec:
  version: v1.36.3
`: &controlplane.KamajiControlPlane{},
		`apiVersion: controlplane.cluster.x-k8s.io/v1alpha2
kind: KamajiControlPlane
metadata:
  name: demo
spec:
  controlPlaneEndpoint:
    host: demo.example.com
  network:
    serviceType: NodePort
  version: v1.36.3
status:
  ready: false
  replicas: 0
`: &controlplane.KamajiControlPlane{},
		`apiVersion: controlplane.cluster.x-k8s.io/v1alpha2
kind: KamajiControlPlaneTemplate
metadata:
  name: demo
spec:
  template:
    spec: {}
`: &controlplane.KamajiControlPlaneTemplate{},
	} {
		t.Run("what sets little is written without empty fields: "+given, func(t *testing.T) {
			t.Parallel()

			if err := yaml.UnmarshalStrict([]byte(given), object); err != nil {
				t.Fatal(err)
			}

			written, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(given, string(written)); diff != "" {
				t.Errorf("changed (-given +written):\n%s", diff)
			}

			kind := object.GetObjectKind().GroupVersionKind().Kind
			if refused := loadDefinition(t, kind, "").Admit(t, crdtest.Decode(t, written), nil); len(refused) != 0 {
				t.Errorf("refused: %s", refused)
			}
		})
	}
}

func TestFieldsOfKamajisProvider(t *testing.T) {
	t.Parallel()

	fields := crdtest.Fields(readFile(t, filepath.Join("testdata", "provider-fields.txt")))

	for kind, file := range map[string]string{
		controlplane.KamajiControlPlaneKind:         "kamajicontrolplane.yaml",
		controlplane.KamajiControlPlaneTemplateKind: "kamajicontrolplanetemplate.yaml",
	} {
		t.Run("each of a "+kind+" is in the definition and in the object that is read and written", func(t *testing.T) {
			t.Parallel()

			schema, object := loadDefinition(t, kind, "").Structural, crdtest.Decode(t, readFile(t, filepath.Join("testdata", file)))

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

func TestASchemeKnowsBothVersions(t *testing.T) {
	t.Parallel()

	scheme := runtime.NewScheme()
	if err := controlplane.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)

	for _, version := range []schema.GroupVersion{controlplane.GroupVersion, controlplane.GroupVersionV1Alpha1} {
		t.Run(version.Version, func(t *testing.T) {
			t.Parallel()

			given := "apiVersion: " + version.String() + "\nkind: KamajiControlPlane\nmetadata: {name: demo}\nspec: {version: v1.36.3}\n"

			object, kind, err := codecs.UniversalDeserializer().Decode([]byte(given), nil, nil)
			if err != nil {
				t.Fatal(err)
			}

			if *kind != version.WithKind(controlplane.KamajiControlPlaneKind) {
				t.Errorf("decoded as %s", kind)
			}

			if got := object.(*controlplane.KamajiControlPlane).Spec.Version; got != "v1.36.3" {
				t.Errorf("version %q", got)
			}

			for _, kind := range []string{
				"KamajiControlPlane", "KamajiControlPlaneList", "KamajiControlPlaneTemplate", "KamajiControlPlaneTemplateList", "ListOptions",
			} {
				if !scheme.Recognizes(version.WithKind(kind)) {
					t.Errorf("no %s", kind)
				}
			}
		})
	}

	for resource, want := range map[schema.GroupVersionResource]string{
		controlplane.KamajiControlPlaneGVR():         "kamajicontrolplanes",
		controlplane.KamajiControlPlaneTemplateGVR(): "kamajicontrolplanetemplates",
	} {
		if resource != (schema.GroupVersionResource{Group: "controlplane.cluster.x-k8s.io", Version: "v1alpha2", Resource: want}) {
			t.Error(resource)
		}
	}

	for _, kind := range []schema.GroupVersionKind{controlplane.KamajiControlPlaneGVK(), controlplane.KamajiControlPlaneTemplateGVK()} {
		if object, err := scheme.New(kind); err != nil || object.(metav1.Object) == nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
