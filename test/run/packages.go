package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// repository begins the import path of every package.
const repository = "github.com/stoker-k8s/stoker/"

// pkg is a package with tests.
type pkg struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string

	rank int // one of the ranks below
}

// name of the package: its directory below the repository's root.
func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, repository) }

// tests are the names of the package's test functions, in the order of its files.
func (p pkg) tests() (names []string, err error) {
	for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
		text, err := os.ReadFile(filepath.Join(p.Dir, file))
		if err != nil {
			return nil, err
		}
		for _, found := range testFunction.FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	return names, nil
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)[\pL\pN_]*)\(`)

// concurrent reports whether the package's own code, without its tests, starts goroutines or shares memory between them. It is
// a heuristic: it does not see callbacks that another package runs side by side.
func (p pkg) concurrent() (bool, error) {
	for _, file := range p.GoFiles {
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		found := false
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType:
				found = true
			case *ast.ImportSpec:
				found = found || slices.Contains([]string{`"sync"`, `"sync/atomic"`, `"golang.org/x/sync/errgroup"`}, n.Path.Value)
			}
			return !found
		})
		if found {
			return true, nil
		}
	}
	return false, nil
}

// packages finds the packages with tests of the workspace, in the directories of the options if there are any. Packages below bench have
// benchmarks alone; go vet sees that they compile. With the race detector only packages with concurrent code remain; the tests of whole
// installations are not among them, because the services that they start are programs of their own.
func packages(ctx context.Context, o options) (all []pkg, err error) {
	dirs, err := modules(ctx)
	if err != nil {
		return nil, err
	}
	out, err := command(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles"}, dirs...)...)
	if err != nil {
		return nil, err
	}
	found := make([]bool, len(o.directories))
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			if i := slices.Index(found, false); i >= 0 {
				return nil, fmt.Errorf("no module of go.work has a package with tests in %q", o.directories[i])
			}
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 || strings.Contains(p.ImportPath+"/", "/bench/") || !p.in(o.directories) {
			continue
		}
		for i, d := range o.directories {
			found[i] = found[i] || p.in([]string{d})
		}
		if o.race {
			if concurrent, err := p.concurrent(); err != nil {
				return nil, err
			} else if !concurrent || p.in([]string{"test"}) {
				continue
			}
		}
		all = append(all, p)
	}
}

// in reports whether the package is in or below one of the directories. All are when there are none.
func (p pkg) in(directories []string) bool {
	return len(directories) == 0 || slices.ContainsFunc(directories, func(d string) bool {
		return d == "." || p.name() == d || strings.HasPrefix(p.name(), d+"/")
	})
}

// modules are the patterns of all packages of the workspace.
func modules(ctx context.Context) (patterns []string, err error) {
	out, err := command(ctx, "go", "work", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(out, &work); err != nil {
		return nil, fmt.Errorf("go.work: %w", err)
	}
	for _, use := range work.Use {
		patterns = append(patterns, "./"+strings.TrimPrefix(filepath.ToSlash(filepath.Join(use.DiskPath, "...")), "./"))
	}
	return patterns, nil
}

// The ranks of packages that a change concerns.
const (
	changedItself = iota
	ofTheSlice
	dependent
)

// affected are the packages that depend on a file which changed since a commit: on one of their own directory, or of a package that they or
// their tests import. A change of versions affects all. A slice of the packages, if one is given, is added to them, so that all have their turn.
func affected(ctx context.Context, all []pkg, since string, s slice) (some []pkg, err error) {
	changed, err := changes(ctx, since)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	versions := slices.ContainsFunc(changed, func(f string) bool { return slices.Contains([]string{"go.mod", "go.sum", "go.work"}, filepath.Base(f)) })
	hit, err := dependents(ctx, all, changed)
	if err != nil {
		return nil, err
	}
	for i, p := range all {
		switch {
		case slices.ContainsFunc(changed, func(f string) bool { return belongs(f, p.name()) }):
			p.rank = changedItself
		case s.of > 0 && i%s.of == s.n-1:
			p.rank = ofTheSlice
		case versions || hit[p.ImportPath]:
			p.rank = dependent
		default:
			continue
		}
		some = append(some, p)
	}
	return some, nil
}

// dependents are the import paths of the packages that import a package with a changed file, or whose tests do.
func dependents(ctx context.Context, all []pkg, changed []string) (map[string]bool, error) {
	args := []string{"list", "-test", "-f", `{{.ImportPath}}{{"\t"}}{{join .Deps " "}}`}
	for _, p := range all {
		args = append(args, p.ImportPath)
	}
	out, err := command(ctx, "go", args...)
	if err != nil {
		return nil, err
	}
	hit := map[string]bool{}
	for text := range strings.Lines(string(out)) {
		path, deps, _ := strings.Cut(strings.TrimSpace(text), "\t")
		path, _, _ = strings.Cut(path, " ") // of "path [path.test]"
		path = strings.TrimSuffix(strings.TrimSuffix(path, ".test"), "_test")
		for _, dep := range strings.Fields(deps) {
			if dep, own := strings.CutPrefix(dep, repository); own && slices.ContainsFunc(changed, func(f string) bool { return belongs(f, dep) }) {
				hit[path] = true
			}
		}
	}
	return hit, nil
}

// belongs reports whether a file is the package's: in its directory, or in a directory of data below it.
func belongs(file, pkg string) bool {
	dir := filepath.ToSlash(filepath.Dir(file))
	return dir == pkg || strings.HasPrefix(dir, pkg+"/testdata") || strings.HasPrefix(dir, pkg+"/") && !strings.HasSuffix(file, ".go")
}

// changes are the files that differ from a commit, committed or not.
func changes(ctx context.Context, since string) (files []string, err error) {
	for _, args := range [][]string{{"diff", "-z", "--no-renames", "--name-only", since}, {"ls-files", "-z", "--others", "--exclude-standard"}} {
		out, err := command(ctx, "git", args...)
		if err != nil {
			return nil, err
		}
		files = append(files, strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })...)
	}
	return files, nil
}

// command runs a program and returns its output.
func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, said.String())
	}
	return out, nil
}
