package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDefinitionsHaveTheConstraints(t *testing.T) {
	t.Parallel()

	directories := map[string]string{"kamaji.clastix.io": "crds", "controlplane.cluster.x-k8s.io": "cluster-api/crds"}
	for group, plurals := range definitions() {
		for plural, d := range plurals {
			file := group + "_" + plural + ".yaml"
			t.Run(file, func(t *testing.T) {
				t.Parallel()

				have, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deployments", directories[group], file))
				if err != nil {
					t.Fatal(err)
				}

				again := filepath.Join(t.TempDir(), file)
				if err := os.WriteFile(again, have, 0o600); err != nil {
					t.Fatal(err)
				}

				if err := complete(again, d); err != nil {
					t.Fatal(err)
				}

				if got, err := os.ReadFile(again); err != nil || !bytes.Equal(got, have) {
					t.Errorf("%s is stale: run `make generate` (%v)", file, err)
				}
			})
		}
	}
}

func TestAPathThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()

	s := &schema{Properties: map[string]schema{"a": {Type: "string"}}}
	for path, says := range map[string]string{"b": "no property b", "a[]": "not a list", "a{}": "not a map"} {
		if err := at(s, path, path, []edit{filled}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
