// Command constrain completes the generated CustomResourceDefinitions: it adds what Kubernetes itself asks of the types that
// Kamaji's API embeds (containers, volumes, tolerations, …), so that what Stoker makes of an accepted object is accepted,
// too. The Go types are Kubernetes' own and can't carry markers of ours. It also adds versions that have the schema of the stored
// one. Run it by `make generate`.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 || definitions()[os.Args[2]] == nil {
		fmt.Fprintln(os.Stderr, "usage: constrain DIRECTORY GROUP")
		os.Exit(2)
	}
	for plural, d := range definitions()[os.Args[2]] {
		if err := complete(filepath.Join(os.Args[1], os.Args[2]+"_"+plural+".yaml"), d); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// definition is what is added to a generated definition.
type definition struct {
	// constraints of the fields.
	constraints fields
	// also are versions that are served beside the generated one, and as it is.
	also []string
}

// definitions are what is added, by group and plural.
func definitions() map[string]map[string]definition {
	older := []string{"v1alpha1"}
	return map[string]map[string]definition{
		"kamaji.clastix.io": {
			"tenantcontrolplanes":  {constraints: tenant()},
			"datastores":           {constraints: dataStore()},
			"kubeconfiggenerators": {constraints: generator()},
		},
		"controlplane.cluster.x-k8s.io": {
			"kamajicontrolplanes":         {constraints: under("spec", settings()), also: older},
			"kamajicontrolplanetemplates": {constraints: under("spec.template.spec", settings()), also: older},
		},
	}
}

// complete adds to the definition in a file. Doing it twice changes nothing.
func complete(file string, d definition) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	stored := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	crd.Spec.Versions = crd.Spec.Versions[stored : stored+1]
	s := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, path := range slices.Sorted(maps.Keys(d.constraints)) {
		if err := at(s, path, path, d.constraints[path]); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	integers(s)
	each(s, flow)
	if len(d.also) > 0 {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	for _, name := range d.also {
		v := crd.Spec.Versions[0].DeepCopy()
		v.Name, v.Storage = name, false
		crd.Spec.Versions = append(crd.Spec.Versions, *v)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	// controller-gen writes no status either.
	out, _, _ = bytes.Cut(out, []byte("\nstatus:\n"))
	return os.WriteFile(file, append([]byte("---\n"), append(bytes.TrimSpace(out), '\n')...), 0o644) //nolint:gosec // a public file
}

// integers bounds whole numbers by what their Go type holds: the API server takes the format as a comment, and what it
// stores must be readable.
func integers(s *schema) {
	each(s, func(s *schema) {
		if s.Format != "int32" {
			return
		}
		if s.Minimum == nil {
			s.Minimum = new(float64(-1 << 31))
		}
		if s.Maximum == nil {
			s.Maximum = new(float64(1<<31 - 1))
		}
	})
}

// flow makes a paragraph of a description one line, where Go has comments of a certain width: kubectl explain breaks lines
// itself.
func flow(s *schema) {
	s.Description = withinParagraph.ReplaceAllString(s.Description, "$1 $2")
}

// withinParagraph is a line's end whose next line goes on with a sentence, rather than being empty, an item of a list or
// indented.
var withinParagraph = regexp.MustCompile(`([^\n])\n([^\n\s*+\-#>])`)
