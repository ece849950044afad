// Package house holds the rules about the place and the size of code that no linter knows.
package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

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

// longestFunction is how many lines the body of a function of the product may have, longestLine and longestTestLine how many characters a line
// may have in the product and in tests, without the text of its strings and with tabs of four.
const longestFunction, longestLine, longestTestLine = 75, 160, 180

// tables are functions that are longer, because all they do is to return a table.
var tables = []string{
	"cmd/stoker/internal/follow/words.go: words", "pkg/api/event/catalogue.go: Catalogue", "pkg/api/internal/constrain/volumes.go: volume",
	"pkg/api/reason/conditions.go: Conditions", "pkg/api/reason/table.go: Table",
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
		if product(path) && !generated(text) {
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

func TestFunctionsAreShort(t *testing.T) {
	set, seen := token.NewFileSet(), map[string]bool{}
	for path, text := range files(t) {
		if !product(path) || generated(text) {
			continue
		}
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			n, id := set.Position(f.Body.End()).Line-set.Position(f.Body.Pos()).Line-1, path+": "+f.Name.Name
			switch listed := slices.Contains(tables, id); {
			case listed:
				seen[id] = n > longestFunction
			case n > longestFunction:
				t.Errorf("%s has %d lines, at most %d are allowed: split it", id, n, longestFunction)
			}
		}
	}
	for _, id := range tables {
		if !seen[id] {
			t.Errorf("%s is not a function of more than %d lines: take it off the list", id, longestFunction)
		}
	}
}

func TestLinesAreShort(t *testing.T) {
	for path, text := range files(t) {
		most := longestLine
		if !product(path) {
			most = longestTestLine
		}
		if generated(text) {
			continue
		}
		for n, width := range widths(text) {
			if width > most {
				t.Errorf("%s:%d has %d characters, at most %d are allowed: break it", path, n+1, width, most)
			}
		}
	}
}

// widths are the widths of the lines of a Go file, without strings, URLs and directives.
func widths(text []byte) []int {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	without := bytes.Clone(text)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		directive := strings.HasPrefix(lit, "//go:") || strings.HasPrefix(lit, "// +kubebuilder:") || strings.Contains(lit, "https://")
		if tok == token.STRING || tok == token.COMMENT && directive {
			at := file.Offset(pos)
			for i := range len(lit) {
				if without[at+i] != '\n' {
					without[at+i] = 0
				}
			}
		}
	}
	var widths []int
	for line := range bytes.Lines(without) {
		line = bytes.ReplaceAll(bytes.TrimSuffix(line, []byte("\n")), []byte("\t"), []byte("    "))
		widths = append(widths, utf8.RuneCount(bytes.ReplaceAll(line, []byte{0}, nil)))
	}
	return widths
}

func generated(text []byte) bool {
	return bytes.HasPrefix(text, []byte("// Code generated")) || bytes.Contains(text, []byte("\n// Code generated"))
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
