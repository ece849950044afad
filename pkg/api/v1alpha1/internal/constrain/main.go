// Command constrain completes the generated CustomResourceDefinitions: it adds what Kubernetes itself asks of the types that
// Kamaji's API embeds (containers, volumes, tolerations, …), so that what Stoker makes of an accepted object is accepted,
// too. The Go types are Kubernetes' own and can't carry markers of ours. Run it by `make generate`.
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
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: constrain DIRECTORY")
		os.Exit(2)
	}
	for file, all := range definitions() {
		if err := constrain(filepath.Join(os.Args[1], file), all); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// definitions are the constraints by file.
func definitions() map[string]fields {
	return map[string]fields{
		"kamaji.clastix.io_tenantcontrolplanes.yaml":  tenant(),
		"kamaji.clastix.io_datastores.yaml":           dataStore(),
		"kamaji.clastix.io_kubeconfiggenerators.yaml": generator(),
	}
}

// constrain adds constraints to the definition in a file. Doing it twice changes nothing.
func constrain(file string, all fields) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for i := range crd.Spec.Versions {
		s := crd.Spec.Versions[i].Schema.OpenAPIV3Schema
		for _, path := range slices.Sorted(maps.Keys(all)) {
			if err := at(s, path, path, all[path]); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		integers(s)
		each(s, flow)
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
