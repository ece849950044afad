package v1alpha1_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1/ruletest"
)

const (
	tenantCRD    = "kamaji.clastix.io_tenantcontrolplanes.yaml"
	dataStoreCRD = "kamaji.clastix.io_datastores.yaml"
	generatorCRD = "kamaji.clastix.io_kubeconfiggenerators.yaml"
)

// definition is a CustomResourceDefinition as an API server works with it.
type definition struct {
	internal   *apiextensions.CustomResourceDefinition
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// loaded keeps what was loaded: compiling the rules takes a second.
var loaded sync.Map

// loadDefinition reads a generated CustomResourceDefinition and refuses it if an API server would.
func loadDefinition(t *testing.T, file string) *definition {
	t.Helper()

	once, _ := loaded.LoadOrStore(file, sync.OnceValue(func() *definition { return load(t, file) }))

	return once.(func() *definition)()
}

func load(t *testing.T, file string) *definition {
	t.Helper()

	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(readFile(t, filepath.Join("..", "..", "..", "deployments", "crds", file)), &crd); err != nil {
		t.Fatal(err)
	}

	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}

	d := &definition{internal: &apiextensions.CustomResourceDefinition{}}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
		&crd, d.internal, nil); err != nil {
		t.Fatal(err)
	}

	schema, err := apiextensions.GetSchemaForVersion(d.internal, crd.Spec.Versions[0].Name)
	if err != nil {
		t.Fatal(err)
	}

	if d.structural, err = structuralschema.NewStructural(schema.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}

	if d.schema, _, err = validation.NewSchemaValidator(schema.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}

	d.rules = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)

	return d
}

// admit does to an object what an API server does before it stores it: prune, default, validate. old is nil for a new
// object.
func (d *definition) admit(t *testing.T, object, old map[string]any) field.ErrorList {
	t.Helper()

	var errs field.ErrorList

	for _, path := range pruning.PruneWithOptions(object, d.structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Forbidden(field.NewPath(path), "unknown field"))
	}

	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.structural)
	defaulting.Default(object, d.structural)

	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)

	var before any

	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, object, d.schema)...)
	} else {
		defaulting.Default(old, d.structural)

		before = old
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, object, old, d.schema)...)
	}

	fromRules, _ := d.rules.Validate(t.Context(), nil, d.structural, object, before, celconfig.RuntimeCELCostBudget)

	return append(errs, fromRules...)
}

func TestDefinitionsAreAcceptedByAnAPIServer(t *testing.T) {
	t.Parallel()

	for _, file := range []string{tenantCRD, dataStoreCRD, generatorCRD} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()

			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), loadDefinition(t, file).internal) {
				t.Error(err)
			}
		})
	}
}

func TestDefaultsFireWhereTheParentIsOmitted(t *testing.T) {
	t.Parallel()

	object := ruletest.Smallest(v1alpha1.TenantControlPlaneKind)
	if refused := loadDefinition(t, tenantCRD).admit(t, object, nil); len(refused) != 0 {
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

	definitions := map[string]*definition{
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

				return definitions[rule.Kind].admit(t, ruletest.Object(rule.Kind, patch), old)
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
			message = longest(expression)
		}

		for all := range said {
			if strings.Contains(all, message) {
				return
			}
		}

		t.Errorf("%s: no object fails with %q", at, message)
	}

	var visit func(s *structuralschema.Structural, at string)

	visit = func(s *structuralschema.Structural, at string) {
		for _, rule := range s.XValidations {
			check(at, rule.Message, rule.MessageExpression)
		}

		for name, property := range s.Properties {
			visit(&property, at+"."+name)
		}

		if s.Items != nil {
			visit(s.Items, at+"[]")
		}
	}

	for _, file := range []string{tenantCRD, dataStoreCRD, generatorCRD} {
		visit(loadDefinition(t, file).structural, "")
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

var (
	literal = regexp.MustCompile(`'((?:[^'\\]|\\.)*)'`)
	value   = regexp.MustCompile(`^("?%[sd]"?|""|.*Forbidden|.*Too long)?: `)
)

// longest is the longest text in a CEL expression, without the value it begins with.
func longest(expression string) string {
	var most string

	for _, found := range literal.FindAllStringSubmatch(expression, -1) {
		text := value.ReplaceAllString(strings.ReplaceAll(found[1], `\'`, "'"), "")
		if len(text) > len(most) && strings.Contains(text, " ") && !strings.HasPrefix(text, "spec.") && !strings.HasPrefix(text, "metadata.") {
			most = text
		}
	}

	return most
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

			object := decode(t, readFile(t, filepath.Join("testdata", test.file)))
			for _, path := range test.without {
				unstructured.RemoveNestedField(object, path...)
			}

			if refused := loadDefinition(t, test.crd).admit(t, object, nil); len(refused) != 0 {
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
		spec := loadDefinition(t, file).internal.Spec
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

			var visit func(s *structuralschema.Structural, at string)

			visit = func(s *structuralschema.Structural, at string) {
				for name, property := range s.Properties {
					path := at + "." + name
					if foreign.MatchString(path) || at == "" && name == "metadata" {
						continue
					}

					if property.Description == "" {
						t.Errorf("%s has no description", path)
					}

					optional := s.ValueValidation == nil || !slices.Contains(s.ValueValidation.Required, name)
					if optional && strings.HasPrefix(path, ".spec.") && !regexp.MustCompile(`[Dd]efault`).MatchString(property.Description) && !strings.Contains(path, ".probes.") {
						t.Errorf("%s does not say what its default is: %q", path, property.Description)
					}

					visit(&property, path)
				}

				if s.Items != nil {
					visit(s.Items, at)
				}
			}

			visit(loadDefinition(t, file).structural, "")
		})
	}
}
