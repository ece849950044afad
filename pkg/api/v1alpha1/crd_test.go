package v1alpha1_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/crdtest"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
)

const (
	tenantCRD    = "kamaji.clastix.io_tenantcontrolplanes.yaml"
	dataStoreCRD = "kamaji.clastix.io_datastores.yaml"
	generatorCRD = "kamaji.clastix.io_kubeconfiggenerators.yaml"
)

// loadDefinition reads a generated CustomResourceDefinition as an API server works with it.
func loadDefinition(t *testing.T, file string) *crdtest.Definition {
	t.Helper()

	return crdtest.Load(t, filepath.Join("..", "..", "..", "deployments", "crds", file))
}

func TestDefinitionsAreAcceptedByAnAPIServer(t *testing.T) {
	t.Parallel()

	for _, file := range []string{tenantCRD, dataStoreCRD, generatorCRD} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()

			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), loadDefinition(t, file).CRD) {
				t.Error(err)
			}
		})
	}
}

func TestDefaultsFireWhereTheParentIsOmitted(t *testing.T) {
	t.Parallel()

	object := ruletest.Smallest(v1alpha1.TenantControlPlaneKind)
	if refused := loadDefinition(t, tenantCRD).Admit(t, object, nil); len(refused) != 0 {
		t.Fatal(refused)
	}

	for path, want := range map[string]any{
		"spec.networkProfile.port":                                           int64(6443),
		"spec.networkProfile.clusterDomain":                                  "cluster.local",
		"spec.networkProfile.serviceCidr":                                    "10.96.0.0/16",
		"spec.networkProfile.podCidr":                                        "10.244.0.0/16",
		"spec.controlPlane.deployment.replicas":                              int64(2),
		"spec.controlPlane.deployment.serviceAccountName":                    "default",
		"spec.controlPlane.deployment.registrySettings.registry":             "registry.k8s.io",
		"spec.controlPlane.deployment.strategy.rollingUpdate.maxSurge":       "100%",
		"spec.controlPlane.deployment.strategy.rollingUpdate.maxUnavailable": int64(0),
		"spec.addons.konnectivity.server.port":                               int64(8132),
		"spec.addons.konnectivity.agent.mode":                                "DaemonSet",
		"spec.addons.konnectivity.agent.image":                               "registry.k8s.io/kas-network-proxy/proxy-agent",
	} {
		got, _, err := unstructured.NestedFieldNoCopy(object, strings.Split(path, ".")...)
		if err != nil || got != want {
			t.Errorf("%s is %v (%T), want %v; %v", path, got, got, want, err)
		}
	}

	for path, want := range map[string]int{
		"spec.kubernetes.admissionControllers":          17,
		"spec.kubernetes.kubelet.preferredAddressTypes": 3,
	} {
		list, _, err := unstructured.NestedSlice(object, strings.Split(path, ".")...)
		if err != nil || len(list) != want {
			t.Errorf("%s has %d entries, want %d; %v", path, len(list), want, err)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()

	definitions := map[string]*crdtest.Definition{
		v1alpha1.TenantControlPlaneKind:  loadDefinition(t, tenantCRD),
		v1alpha1.DataStoreKind:           loadDefinition(t, dataStoreCRD),
		v1alpha1.KubeconfigGeneratorKind: loadDefinition(t, generatorCRD),
	}

	for _, rule := range ruletest.Rules() {
		t.Run(rule.Kind+"/"+rule.Name, func(t *testing.T) {
			t.Parallel()

			judge := func(patch string) field.ErrorList {
				var old map[string]any
				if rule.From != "" {
					old = ruletest.Object(rule.Kind, rule.From)
				}

				return definitions[rule.Kind].Admit(t, ruletest.Object(rule.Kind, patch), old)
			}

			for _, passes := range rule.Passes {
				if refused := judge(passes); len(refused) != 0 {
					t.Errorf("%s\nrefused: %v", passes, refused)
				}
			}

			for _, fails := range rule.Fails {
				refused := judge(fails.Object)

				if rule.Policy {
					// Policies look only at what the definition accepts.
					if len(refused) != 0 {
						t.Errorf("%s\nrefused by the definition: %v", fails.Object, refused)
					}

					continue
				}

				if !slices.ContainsFunc(refused, func(err *field.Error) bool {
					return err.Field == fails.Field && string(err.Type) == "FieldValue"+fails.Rule && fails.Is(err.ErrorBody())
				}) {
					t.Errorf("%s\nwant  %s\ngot   %v", fails.Object, fails, refused)
				}

				for _, err := range refused {
					if strings.Contains(err.Detail, "evaluating rule") {
						t.Errorf("%s\na rule fails instead of refusing: %v", fails.Object, err)
					}
				}
			}
		})
	}
}

func TestEveryRuleHasAnObjectThatFails(t *testing.T) {
	t.Parallel()

	said := map[string]bool{}

	for _, rule := range ruletest.Rules() {
		for _, fails := range rule.Fails {
			said[fails.Message] = true
		}
	}

	said[ruletest.NoRoutes.Message] = true

	check := func(at, message, expression string) {
		if message == "" {
			message = crdtest.Words(expression)
		}

		for all := range said {
			if strings.Contains(all, message) {
				return
			}
		}

		t.Errorf("%s: no object fails with %q", at, message)
	}

	for _, file := range []string{tenantCRD, dataStoreCRD, generatorCRD} {
		for _, rule := range loadDefinition(t, file).Rules() {
			check(rule.At, rule.Message, rule.MessageExpression)
		}
	}

	for _, document := range strings.Split(string(readFile(t, filepath.Join("..", "..", "..", "deployments", "policies", "objects.yaml"))), "\n---\n") {
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}

		for _, v := range policy.Spec.Validations {
			if _, message, ok := strings.Cut(v.Message, "Forbidden: "); ok {
				v.Message = message
			}

			check(policy.Name, v.Message, v.MessageExpression)
		}
	}
}

func TestFullObjectsAreAccepted(t *testing.T) {
	t.Parallel()

	settings := []string{"spec", "kubernetes", "apiServer"} // in elements of its lists fields exclude each other
	for name, test := range map[string]struct {
		file, crd string
		// without are fields that exclude others.
		without [][]string
	}{
		"a tenant without ingress": {file: "tenantcontrolplane.yaml", crd: tenantCRD, without: [][]string{{"spec", "controlPlane", "ingress"}, settings}},
		"a tenant without gateway": {file: "tenantcontrolplane.yaml", crd: tenantCRD, without: [][]string{{"spec", "controlPlane", "gateway"}, settings}},
		"a DataStore":              {file: "datastore.yaml", crd: dataStoreCRD},
		"a generator":              {file: "kubeconfiggenerator.yaml", crd: generatorCRD, without: [][]string{{"spec", "user", "stringValue"}, {"spec", "groups"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			object := crdtest.Decode(t, readFile(t, filepath.Join("testdata", test.file)))
			for _, path := range test.without {
				unstructured.RemoveNestedField(object, path...)
			}

			if refused := loadDefinition(t, test.crd).Admit(t, object, nil); len(refused) != 0 {
				t.Errorf("refused: %s", refused)
			}
		})
	}
}

// Scripts read kubectl's columns by their position: those of Kamaji come first and alone, others with -o wide only.
func TestKubectlHasKamajisColumns(t *testing.T) {
	t.Parallel()

	for file, want := range map[string][]string{
		tenantCRD: {
			"Version .spec.kubernetes.version", "Installed Version .status.kubernetesResources.version.version",
			"Status .status.kubernetesResources.version.status", "Control-Plane endpoint .status.controlPlaneEndpoint",
			"Kubeconfig .status.kubeconfig.admin.secretName", "Datastore .status.storage.dataStoreName", "Age .metadata.creationTimestamp",
		},
		dataStoreCRD: {"Driver .spec.driver", "Ready .status.ready", "Age .metadata.creationTimestamp"},
		generatorCRD: {"Age .metadata.creationTimestamp"},
	} {
		spec := loadDefinition(t, file).CRD.Spec
		columns := spec.AdditionalPrinterColumns
		if len(columns) == 0 {
			columns = spec.Versions[0].AdditionalPrinterColumns
		}

		var got []string

		for _, c := range columns {
			if c.Priority == 0 {
				got = append(got, c.Name+" "+c.JSONPath)
			}
		}

		if !slices.Equal(got, want) {
			t.Errorf("%s has the columns %q", file, got)
		}
	}
}

func TestEveryFieldIsExplained(t *testing.T) {
	t.Parallel()

	// Below these stand types of Kubernetes, which explains them.
	foreign := regexp.MustCompile(`[.](affinity|tolerations|topologySpreadConstraints|strategy|resources|additional(Init)?Containers|additionalVolumes|additionalVolumeMounts|\w*[sS]ecurityContexts?|parentRefs|\w*Selector|secretReference)[.]`)

	for _, file := range []string{tenantCRD, dataStoreCRD, generatorCRD} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()

			loadDefinition(t, file).RequireExplained(t, foreign)
		})
	}
}
