package main

// The run of a package's tests with each of its mutants.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// tests are those of a package, compiled with its mutants.
type tests struct {
	binary, dir, tmp string
	atOnce           int
	all              []*test
}

// test is one test, and what is known from its run without a mutant.
type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// slack is what a test may take beyond twice its time without a mutant: the machine may have other work.
const slack = 30 * time.Second

func readFile(path string) ([]byte, error) { return os.ReadFile(path) }

// build compiles the tests of a directory with the mutants of a package; the tree is left alone.
func build(ctx context.Context, m *mutated, dir, tmp string) (*tests, error) {
	replace := map[string]string{}
	for path, text := range m.overlay {
		to := filepath.Join(tmp, filepath.Base(path))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return nil, err
		}
		replace[path] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(tmp, "overlay.json"), overlay, 0o600); err != nil {
		return nil, err
	}
	t := &tests{binary: filepath.Join(tmp, "test"), dir: dir, tmp: tmp}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(tmp, "overlay.json"), "-o", t.binary, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("tests of %s with mutants of %s: %w\n%s", dir, m.pkg.PkgPath, err, out)
	}
	return t, nil
}

// learn runs each test without a mutant and notes which mutants it reaches and how long it takes.
func (t *tests) learn(ctx context.Context, only string) error {
	list := exec.CommandContext(ctx, t.binary, "-test.list", only)
	list.Dir = t.dir
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list of tests: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(t.atOnce)
	var mu sync.Mutex
	for _, n := range strings.Fields(string(out)) {
		if strings.HasPrefix(n, "Benchmark") || strings.HasPrefix(n, "Fuzz") {
			continue
		}
		g.Go(func() error {
			began, reached := time.Now(), filepath.Join(t.tmp, n+".reached")
			said, err := t.run(ctx, n, 10*time.Minute, "STOKER_MUTANTS_REACHED="+reached)
			if err != nil { // what fails by itself now and then must not count as a killer
				return fmt.Errorf("%s fails without a mutant: %w\n%s", n, err, said)
			}
			one := &test{name: n, took: time.Since(began), reaches: map[int]bool{}}
			numbers, err := os.ReadFile(reached)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			for _, s := range strings.Fields(string(numbers)) {
				i, _ := strconv.Atoi(s)
				one.reaches[i] = true
			}
			mu.Lock()
			defer mu.Unlock()
			t.all = append(t.all, one)
			return nil
		})
	}
	err = g.Wait()
	slices.SortFunc(t.all, func(a, b *test) int { return int(a.took - b.took) })
	return err
}

// run runs one test.
func (t *tests) run(ctx context.Context, name string, within time.Duration, environment ...string) (said []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.binary, "-test.run", "^"+name+"$", "-test.short", "-test.failfast", "-test.timeout", within.String())
	cmd.Dir, cmd.Env = t.dir, append(os.Environ(), environment...)
	// The programs that a test builds and starts have the mutants, too.
	cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+filepath.Join(t.tmp, "overlay.json"))
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// killer returns the test that fails with a mutant, empty for none, and how many reach it. Quick tests come first.
func (t *tests) killer(ctx context.Context, number int) (killer string, reach int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(t.atOnce)
	var mu sync.Mutex
	for _, one := range t.all {
		if !one.reaches[number] {
			continue
		}
		reach++
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			_, err := t.run(ctx, one.name, 2*one.took+slack, "STOKER_MUTANT="+strconv.Itoa(number))
			mu.Lock()
			defer mu.Unlock()
			if err != nil && ctx.Err() == nil {
				killer = one.name
				cancel()
			}
			return nil
		})
	}
	_ = g.Wait()
	return killer, reach
}
