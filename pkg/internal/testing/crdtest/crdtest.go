// Package crdtest does to objects what an API server does by a CustomResourceDefinition, with the API server's own code. For tests.
package crdtest

import (
	"os"
	"slices"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Definition is one version of a CustomResourceDefinition as an API server works with it.
type Definition struct {
	// CRD is the whole definition.
	CRD *apiextensions.CustomResourceDefinition
	// Structural is the version's schema.
	Structural *structuralschema.Structural

	schema validation.SchemaValidator
	rules  *cel.Validator
}

// loaded keeps what was loaded: compiling the rules takes a second.
var loaded sync.Map

// Load reads the stored version of the definition in a file.
func Load(t testing.TB, file string) *Definition {
	t.Helper()
	return LoadVersion(t, file, "")
}

// LoadVersion reads a version of the definition in a file; "" is the stored one.
func LoadVersion(t testing.TB, file, version string) *Definition {
	t.Helper()

	once, _ := loaded.LoadOrStore([2]string{file, version}, sync.OnceValue(func() *Definition { return load(t, file, version) }))

	return once.(func() *Definition)()
}

func load(t testing.TB, file, version string) *Definition {
	t.Helper()

	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &crd); err != nil {
		t.Fatal(err)
	}

	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)

	stored := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	crd.Status.StoredVersions = []string{crd.Spec.Versions[stored].Name}
	if version == "" {
		version = crd.Spec.Versions[stored].Name
	}

	d := &Definition{CRD: &apiextensions.CustomResourceDefinition{}}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, d.CRD, nil); err != nil {
		t.Fatal(err)
	}

	schema, err := apiextensions.GetSchemaForVersion(d.CRD, version)
	if err != nil {
		t.Fatal(err)
	}

	if d.Structural, err = structuralschema.NewStructural(schema.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}

	if d.schema, _, err = validation.NewSchemaValidator(schema.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}

	d.rules = cel.NewValidator(d.Structural, true, celconfig.PerCallLimit)

	return d
}

// Admit does to an object what an API server does before it stores it: prune, default, validate. old is nil for a new
// object.
func (d *Definition) Admit(t testing.TB, object, old map[string]any) field.ErrorList {
	t.Helper()

	var errs field.ErrorList

	for _, path := range pruning.PruneWithOptions(object, d.Structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Forbidden(field.NewPath(path), "unknown field"))
	}

	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.Structural)
	defaulting.Default(object, d.Structural)

	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.Structural, object)...)

	var before any

	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, object, d.schema)...)
	} else {
		defaulting.Default(old, d.Structural)

		before = old
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, object, old, d.schema)...)
	}

	fromRules, _ := d.rules.Validate(t.Context(), nil, d.Structural, object, before, celconfig.RuntimeCELCostBudget)

	return append(errs, fromRules...)
}

// Decode reads an object from YAML as the API server reads it from JSON: whole numbers stay whole, as rules need them.
func Decode(t testing.TB, content []byte) map[string]any {
	t.Helper()

	asJSON, err := yaml.YAMLToJSON(content)
	if err != nil {
		t.Fatal(err)
	}

	var object map[string]any
	if err := json.Unmarshal(asJSON, &object); err != nil {
		t.Fatal(err)
	}

	return object
}
