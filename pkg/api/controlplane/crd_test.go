package controlplane_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/crdtest"
)

// files of the definitions by kind.
var files = map[string]string{
	controlplane.KamajiControlPlaneKind:         "controlplane.cluster.x-k8s.io_kamajicontrolplanes.yaml",
	controlplane.KamajiControlPlaneTemplateKind: "controlplane.cluster.x-k8s.io_kamajicontrolplanetemplates.yaml",
}

func path(kind string) string {
	return filepath.Join("..", "..", "..", "deployments", "cluster-api", "crds", files[kind])
}

// loadDefinition reads a version of a kind's definition as an API server works with it; "" is the stored version.
func loadDefinition(t *testing.T, kind, version string) *crdtest.Definition {
	t.Helper()

	return crdtest.LoadVersion(t, path(kind), version)
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return content
}

func TestDefinitionsAreAcceptedByAnAPIServer(t *testing.T) {
	t.Parallel()

	for kind := range files {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), loadDefinition(t, kind, "").CRD) {
				t.Error(err)
			}

			// In the form of YAML that everything here is kept in; an API server takes 3 MB, its database 1.5 MB of JSON.
			if size := len(readFile(t, path(kind))); size > 1<<20 {
				t.Errorf("%d bytes: more than 1 MiB", size)
			}
		})
	}
}

func TestDefinitionsServeBothContracts(t *testing.T) {
	t.Parallel()

	for kind := range files {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			var crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.UnmarshalStrict(readFile(t, path(kind)), &crd); err != nil {
				t.Fatal(err)
			}

			if len(crd.Spec.Versions) != 2 {
				t.Fatalf("%d versions", len(crd.Spec.Versions))
			}

			stored, served := crd.Spec.Versions[0], crd.Spec.Versions[1]
			if stored.Name != "v1alpha2" || !stored.Storage || !stored.Served {
				t.Errorf("%s: storage %t, served %t", stored.Name, stored.Storage, stored.Served)
			}

			if served.Name != "v1alpha1" || served.Storage || !served.Served {
				t.Errorf("%s: storage %t, served %t", served.Name, served.Storage, served.Served)
			}

			served.Name, served.Storage = stored.Name, stored.Storage
			if diff := cmp.Diff(stored, served); diff != "" {
				t.Errorf("the versions differ (-v1alpha2 +v1alpha1):\n%s", diff)
			}

			if crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
				t.Errorf("conversion: %v", crd.Spec.Conversion)
			}

			// By these Cluster API knows which version is of which contract.
			labels := map[string]string{"cluster.x-k8s.io/v1beta1": "v1alpha1", "cluster.x-k8s.io/v1beta2": "v1alpha2"}
			if diff := cmp.Diff(labels, crd.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}

			if got := crd.Spec.Names.Categories; !slices.Equal(got, []string{"cluster-api", "kamaji"}) {
				t.Errorf("categories: %q", got)
			}

			short := map[string]string{controlplane.KamajiControlPlaneKind: "ktcp", controlplane.KamajiControlPlaneTemplateKind: "ktcpt"}[kind]
			if got := crd.Spec.Names.ShortNames; !slices.Equal(got, []string{short}) {
				t.Errorf("short names: %q", got)
			}

			if crd.Spec.Scope != apiextensionsv1.NamespaceScoped {
				t.Errorf("scope: %s", crd.Spec.Scope)
			}
		})
	}
}

func TestSubresources(t *testing.T) {
	t.Parallel()

	subresources := func(kind string) *apiextensions.CustomResourceSubresources {
		spec := loadDefinition(t, kind, "").CRD.Spec
		if spec.Subresources != nil {
			return spec.Subresources
		}

		return spec.Versions[0].Subresources
	}

	want := &apiextensions.CustomResourceSubresources{
		Status: &apiextensions.CustomResourceSubresourceStatus{},
		Scale: &apiextensions.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: new(".status.selector"),
		},
	}
	if diff := cmp.Diff(want, subresources(controlplane.KamajiControlPlaneKind)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if got := subresources(controlplane.KamajiControlPlaneTemplateKind); got != nil {
		t.Errorf("a template has %v", got)
	}
}

// Scripts read kubectl's columns by their position. Both providers' objects have the same ones.
func TestKubectlShowsWhetherEitherProviderInitializedIt(t *testing.T) {
	t.Parallel()

	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(readFile(t, path(controlplane.KamajiControlPlaneKind)), &crd); err != nil {
		t.Fatal(err)
	}

	for status, initialized := range map[string]any{
		`{}`:                   nil,
		`{initialized: true}`:  true, // contract v1beta1
		`{initialized: false}`: false,
		`{initialization: {controlPlaneInitialized: true}}`:                      true, // contract v1beta2
		`{initialization: {}}`:                                                   nil,
		`{initialized: true, initialization: {}}`:                                true,
		`{initialized: true, initialization: {controlPlaneInitialized: true}}`:   true,
		`{initialized: false, initialization: {controlPlaneInitialized: true}}`:  true, // converges to what counts now
		`{initialized: false, initialization: {controlPlaneInitialized: false}}`: false,
	} {
		for _, version := range crd.Spec.Versions {
			t.Run(status+" in "+version.Name, func(t *testing.T) {
				t.Parallel()

				columns, err := tableconvertor.New(version.AdditionalPrinterColumns)
				if err != nil {
					t.Fatal(err)
				}

				object := &unstructured.Unstructured{Object: crdtest.Decode(t, []byte(`
apiVersion: controlplane.cluster.x-k8s.io/v1alpha2
kind: KamajiControlPlane
metadata: {name: demo}
spec: {version: v1.36.3}
status: `+status))}
				object.SetCreationTimestamp(metav1.Now())

				table, err := columns.ConvertToTable(t.Context(), object, nil)
				if err != nil {
					t.Fatal(err)
				}

				var names []string
				for _, c := range table.ColumnDefinitions {
					names = append(names, c.Name)
				}

				if want := []string{"Name", "Version", "Initialized", "Ready", "Age"}; !slices.Equal(names, want) {
					t.Errorf("columns %q", names)
				}

				if cells := table.Rows[0].Cells; cells[1] != "v1.36.3" || cells[2] != initialized {
					t.Errorf("cells %v, want initialized %v", cells, initialized)
				}
			})
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()

	settings := map[string]any{
		"registry":                              "registry.k8s.io",
		"network.serviceType":                   "LoadBalancer",
		"kubelet.cgroupfs":                      "systemd",
		"addons.konnectivity.server.port":       int64(8132),
		"addons.konnectivity.server.image":      "registry.k8s.io/kas-network-proxy/proxy-server",
		"addons.konnectivity.agent.image":       "registry.k8s.io/kas-network-proxy/proxy-agent",
		"addons.konnectivity.agent.mode":        "DaemonSet",
		"addons.konnectivity.agent.hostNetwork": false,
	}

	check := func(t *testing.T, kind, given, under string, more map[string]any) {
		t.Helper()

		object := crdtest.Decode(t, []byte(given))
		if refused := loadDefinition(t, kind, "").Admit(t, object, nil); len(refused) != 0 {
			t.Fatal(refused)
		}

		for path, want := range settings {
			got, _, err := unstructured.NestedFieldNoCopy(object, strings.Split(under+"."+path, ".")...)
			if err != nil || got != want {
				t.Errorf("%s is %v (%T), want %v; %v", path, got, got, want, err)
			}
		}

		types, _, err := unstructured.NestedStringSlice(object, strings.Split(under+".kubelet.preferredAddressTypes", ".")...)
		if want := []string{"InternalIP", "ExternalIP", "Hostname"}; err != nil || !slices.Equal(types, want) {
			t.Errorf("preferredAddressTypes are %q; %v", types, err)
		}

		for path, want := range more {
			got, _, err := unstructured.NestedFieldNoCopy(object, strings.Split(path, ".")...)
			if err != nil || got != want {
				t.Errorf("%s is %v (%T), want %v; %v", path, got, got, want, err)
			}
		}

		// What has its default in the TenantControlPlane stays away.
		for _, path := range []string{"admissionControllers", "deployment", "apiServer", "dataStoreName"} {
			if got, found, _ := unstructured.NestedFieldNoCopy(object, strings.Split(under+"."+path, ".")...); found {
				t.Errorf("%s is %v", path, got)
			}
		}
	}

	t.Run("of a control plane", func(t *testing.T) {
		t.Parallel()
		check(t, controlplane.KamajiControlPlaneKind, `{spec: {version: v1.36.3, addons: {konnectivity: {}}}, status: {}}`, "spec",
			map[string]any{"spec.replicas": int64(2), "status.externalManagedControlPlane": true})
	})

	t.Run("of a template", func(t *testing.T) {
		t.Parallel()
		check(t, controlplane.KamajiControlPlaneTemplateKind, `{spec: {template: {spec: {addons: {konnectivity: {}}}}}}`,
			"spec.template.spec", nil)
	})

	t.Run("the cgroup driver has none where the kubelet's settings are there, as with Kamaji's provider", func(t *testing.T) {
		t.Parallel()

		object := crdtest.Decode(t, []byte(`{spec: {version: v1.36.3, kubelet: {preferredAddressTypes: [Hostname]}}}`))
		if refused := loadDefinition(t, controlplane.KamajiControlPlaneKind, "").Admit(t, object, nil); len(refused) != 0 {
			t.Fatal(refused)
		}

		if got, found, _ := unstructured.NestedFieldNoCopy(object, "spec", "kubelet", "cgroupfs"); found {
			t.Errorf("cgroupfs is %v", got)
		}
	})
}

func TestFullObjectsAreAccepted(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		file, without string // a field that excludes another
	}{
		"a control plane without ingress": {"kamajicontrolplane.yaml", "spec.network.ingress"},
		"a control plane without gateway": {"kamajicontrolplane.yaml", "spec.network.gateway"},
		"a template without ingress":      {"kamajicontrolplanetemplate.yaml", "spec.template.spec.network.ingress"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			object := crdtest.Decode(t, readFile(t, filepath.Join("testdata", test.file)))
			unstructured.RemoveNestedField(object, strings.Split(test.without, ".")...)

			if refused := loadDefinition(t, object["kind"].(string), "").Admit(t, object, nil); len(refused) != 0 {
				t.Errorf("refused: %s", refused)
			}
		})
	}
}

func TestObjectsOfKamajisProviderAreAccepted(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob(filepath.Join("testdata", "accepted", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}

	for _, file := range files {
		for _, document := range strings.Split(string(readFile(t, file)), "\n---\n") {
			object := &unstructured.Unstructured{Object: crdtest.Decode(t, []byte(document))}

			t.Run(object.GetName(), func(t *testing.T) {
				t.Parallel()

				// Any version may be asked for any object.
				for _, version := range []string{"v1alpha1", "v1alpha2"} {
					refused := loadDefinition(t, object.GetKind(), version).Admit(t, object.DeepCopy().Object, nil)
					if len(refused) != 0 {
						t.Errorf("refused as %s: %s", version, refused)
					}
				}
			})
		}
	}
}

func TestEveryFieldIsExplained(t *testing.T) {
	t.Parallel()

	// Below these stand types of Kubernetes, which explains them.
	foreign := regexp.MustCompile(`[.](affinity|tolerations|topologySpreadConstraints|strategy|resources|extra(Init)?Containers|` +
		`extraVolumes|extraVolumeMounts|\w*[sS]ecurityContexts?|conditions)[.]`)

	for kind := range files {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			loadDefinition(t, kind, "").RequireExplained(t, foreign)
		})
	}
}
