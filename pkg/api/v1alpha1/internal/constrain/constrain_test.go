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

	for file, all := range definitions() {
		t.Run(file, func(t *testing.T) {
			t.Parallel()

			have, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "deployments", "crds", file))
			if err != nil {
				t.Fatal(err)
			}

			again := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(again, have, 0o600); err != nil {
				t.Fatal(err)
			}

			if err := constrain(again, all); err != nil {
				t.Fatal(err)
			}

			if got, err := os.ReadFile(again); err != nil || !bytes.Equal(got, have) {
				t.Errorf("deployments/crds/%s is stale: run `make generate` (%v)", file, err)
			}
		})
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
