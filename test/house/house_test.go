// Package house holds the rules about where code is that no linter knows.
package house

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/checkout"
)

// limit is how many lines a package of the product may have, without its tests and generated files.
const limit = 4000

// larger are the packages that have more, with their own limits and the reasons.
var larger = map[string]struct {
	limit  int
	reason string
}{
	"cmd/stoker":        {5500, "each command has a file of its own"},
	"services/intake":   {7000, "each command, fact and object of a tenant has a file of its own, and all end in one spec"},
	"services/workload": {6200, "each object and each part of a pod has a file of its own, and all end in one Deployment"},
}

func TestDeploymentsHaveNoGo(t *testing.T) {
	for path := range files(t) {
		if strings.HasPrefix(path, "deployments/") {
			t.Errorf("%s: move Go out of deployments: the local stack to local, generators and builders to tools", path)
		}
	}
}

func TestPackagesAreSmall(t *testing.T) {
	lines := map[string]int{}
	for path, text := range files(t) {
		if product(path) && !bytes.HasPrefix(text, []byte("// Code generated")) && !bytes.Contains(text, []byte("\n// Code generated")) {
			lines[filepath.Dir(path)] += bytes.Count(text, []byte("\n"))
		}
	}
	for dir, n := range lines {
		most := limit
		if l, ok := larger[dir]; ok {
			most = l.limit
		}
		if n > most {
			t.Errorf("%s has %d lines, at most %d are allowed: split it, or say in %s why not", dir, n, most, "test/house/house_test.go")
		}
	}
	for dir, l := range larger {
		if lines[dir] <= limit {
			t.Errorf("%s has %d lines: the limit of its own is needless (%q)", dir, lines[dir], l.reason)
		}
	}
}

// product reports whether a Go file is part of the product: no test, no test support, no tool and no example.
func product(path string) bool {
	for _, dir := range []string{"test/", "tools/", "examples/"} {
		if strings.HasPrefix(path, dir) {
			return false
		}
	}
	return !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "/testing/") && !strings.Contains(path, "/testdata/")
}

// files are the Go files of the repository, by their paths in it.
func files(t *testing.T) map[string][]byte {
	t.Helper()
	root, all := checkout.Root(), map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		all[filepath.ToSlash(name)] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 1000 {
		t.Fatal(fmt.Sprint("only ", len(all), " files in ", root))
	}
	return all
}
