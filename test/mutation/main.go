// Command mutation changes the deciding code in small ways (a comparison turned round, an operand or a statement dropped, an error
// forgotten) and runs the tests that reach the change. A change that no test notices, a survivor, is either a test that is missing, code
// that decides nothing, or explained in explained.yaml.
//
// What there is to be had (gremlins, the only such tool that is kept up) copies one module to another place, where neither its
// neighbours nor the repository's files are, builds once for each mutant, runs all tests of the package for it, and drops no statements.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const usage = `Usage: mutation [FLAG…] [FILE…]

Changes Go files (below the repository; those of the list in deciding.yaml by default) and runs the tests of their packages; of YAML
files the expressions of policies, and runs what test/rules tries. Prints the mutants that survive, those that no test reaches among
them, and a table.

Exit codes: 0 none survives that explained.yaml doesn't explain, 1 some do, or an explanation is of no mutant, 2 wrong usage.

`

func main() {
	r := runner{out: os.Stdout}
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage); flag.PrintDefaults() }
	flag.StringVar(&r.root, "root", "..", "the repository")
	flag.StringVar(&r.tests, "run", ".", "tests to run, a regular expression")
	flag.StringVar(&r.in, "in", "", "functions, or expressions of policies, to change, a part of their name; empty for all")
	flag.StringVar(&r.by, "by", "", "the directory, below the repository, whose tests to run; empty for a file's own")
	flag.IntVar(&r.atOnce, "at-once", 4, "tests to run side by side")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survived, err := r.run(ctx, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
	}
	if err != nil || survived {
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// explanation says why a survivor may survive.
type explanation struct {
	File   string `json:"file"`
	In     string `json:"in"`
	Change string `json:"change"`
	Why    string `json:"why"`
}

// runner runs the mutants of files.
type runner struct {
	root, tests, in, by string
	atOnce              int
	out                 io.Writer
	explained           []explanation
}

// count is what became of a file's mutants.
type count struct{ all, killed, explained, survived int }

// run runs the mutants of files and reports whether one survived.
func (r *runner) run(ctx context.Context, files []string) (survived bool, err error) {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return false, err
	}
	r.root = root
	if err := read(filepath.Join(root, "test/mutation/explained.yaml"), &r.explained); err != nil {
		return false, err
	}
	if len(files) == 0 {
		if err := read(filepath.Join(root, "test/mutation/deciding.yaml"), &files); err != nil {
			return false, err
		}
	}
	var dirs, policies []string
	byDir := map[string][]string{}
	for _, f := range files {
		if path.Ext(f) == ".yaml" {
			policies = append(policies, f)
			continue
		}
		dir := path.Dir(path.Clean(f))
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		byDir[dir] = append(byDir[dir], path.Base(f))
	}
	counts := map[string]*count{}
	for _, dir := range dirs {
		if err := r.packageOf(ctx, dir, byDir[dir], counts); err != nil {
			return false, err
		}
	}
	survived = r.table(files, counts)
	if len(policies) > 0 {
		survived = r.policies(ctx, policies) != nil || survived
	}
	return survived, ctx.Err()
}

// policies runs the mutants of policies, which a test makes on a real API server. An error means that one survived, or that it failed.
func (r *runner) policies(ctx context.Context, files []string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "./rules", "-run", "^TestMutants$", "-count=1", "-v", "-timeout", "0")
	cmd.Dir = filepath.Join(r.root, "test")
	cmd.Env = append(os.Environ(), "STOKER_TEST_MUTATE="+strings.Join(files, " "), "STOKER_TEST_MUTATE_IN="+r.in)
	cmd.Stdout, cmd.Stderr = r.out, os.Stderr
	return cmd.Run()
}

// packageOf runs the mutants of some of a package's files.
func (r *runner) packageOf(ctx context.Context, dir string, names []string, counts map[string]*count) error {
	m, err := mutatePackage(r.root, dir, names)
	if err != nil {
		return err
	}
	if err := r.stale(m, names); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	by := m.dir
	if r.by != "" {
		by = filepath.Join(r.root, r.by)
	}
	t, err := build(ctx, m, by, tmp)
	if err != nil {
		return err
	}
	t.atOnce = r.atOnce
	if err := t.learn(ctx, r.tests); err != nil {
		return err
	}
	for i, mutant := range m.mutants {
		if !strings.Contains(mutant.in, r.in) {
			continue
		}
		c := counts[mutant.file]
		if c == nil {
			c = &count{}
			counts[mutant.file] = c
		}
		c.all++
		if r.explain(mutant) {
			c.explained++
			continue
		}
		killer, reach := t.killer(ctx, i)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case killer != "":
			c.killed++
			fmt.Fprintf(os.Stderr, "killed by %s: %s\n", killer, mutant)
		case reach == 0:
			c.survived++
			fmt.Fprintf(r.out, "no test reaches %s\n", mutant)
		default:
			c.survived++
			fmt.Fprintf(r.out, "survived %d tests: %s\n", reach, mutant)
		}
	}
	return nil
}

// explain reports whether a mutant may survive.
func (r *runner) explain(m mutant) bool {
	return slices.ContainsFunc(r.explained, func(e explanation) bool { return e.of(m) })
}

func (e explanation) of(m mutant) bool {
	return e.File == m.file && e.In == m.in && e.Change == m.change()
}

// stale is an error when there is an explanation of a mutant that the files don't have.
func (r *runner) stale(m *mutated, names []string) error {
	for _, e := range r.explained {
		here := filepath.Join(r.root, filepath.Dir(e.File)) == m.dir && slices.Contains(names, filepath.Base(e.File))
		if here && !slices.ContainsFunc(m.mutants, e.of) {
			return fmt.Errorf("explained.yaml explains a mutant that there is not: %s %s: %s", e.File, e.In, e.Change)
		}
	}
	return nil
}

// table prints what became of each file's mutants and reports whether any survived.
func (r *runner) table(files []string, counts map[string]*count) (survived bool) {
	fmt.Fprintf(r.out, "\n%-40s %8s %8s %10s %9s\n", "file", "mutants", "killed", "explained", "survived")
	for _, f := range files {
		if c := counts[path.Clean(f)]; c != nil {
			fmt.Fprintf(r.out, "%-40s %8d %8d %10d %9d\n", f, c.all, c.killed, c.explained, c.survived)
			survived = survived || c.survived > 0
		}
	}
	return survived
}

func read(name string, v any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(text, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
