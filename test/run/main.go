// Command run runs the tests of all modules, and says at the end what ran and how long each part took. A part that fails keeps none from
// running.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `Usage: run DIRECTORY… [-- FLAG…] [-- DIRECTORY… -- FLAG…]…

Runs the tests in the directories and below them, but not in !DIRECTORY, with the flags of go test; then those of the next group, with its
flags. Like go test it prints a line for each package that passes, and all that a failed test wrote. At the end come a table of the parts, the
slowest tests, why tests were skipped, what failed, and a line such as "1234 passed, 0 failed, 5 skipped in 16m40s".

Examples:
  run pkg services/certs -- -race -short
  run services '!services/addons' -- -race -- services/addons test/e2e -- -p 3

Tests keep their files in memory, in /dev/shm, where 10 GB of it are free; TMPDIR names another directory.

Exit codes: 0 all passed, 1 something failed, 2 wrong usage.
`

func main() {
	groups := parse(os.Args[1:])
	if groups == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	// An interrupt goes to all of the terminal's processes; go test ends by it, and what ran is still told.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r := newReport(os.Stdout, modules(groups))
	err := test(ctx, r, groups)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
	}
	if r.summary(); err != nil || r.failed() {
		os.Exit(1)
	}
}

// group of packages that are tested with the same flags of go test.
type group struct{ directories, flags, packages []string }

// parse reads the command line. It returns nil for one that is wrong.
func parse(args []string) (groups []group) {
	for len(args) > 0 {
		var g group
		g.directories, args = cut(args)
		g.flags, args = cut(args)
		if len(modules([]group{g})) == 0 || strings.HasPrefix(g.directories[0], "-") {
			return nil
		}
		groups = append(groups, g)
	}
	return groups
}

// cut returns what is before the first "--", and after it.
func cut(args []string) (before, after []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// modules are the directories of all groups.
func modules(groups []group) (all []string) {
	for _, g := range groups {
		for _, d := range g.directories {
			if !strings.HasPrefix(d, not) {
				all = append(all, d)
			}
		}
	}
	return all
}

// not begins a directory whose packages aren't tested.
const not = "!"

// list finds the packages of the group that have tests, or may have, in the order of the directories. Those below bench have benchmarks alone,
// and to link them takes long; the linters see that they can be built.
func (g *group) list(ctx context.Context) error {
	args := []string{"list"}
	for _, d := range modules([]group{*g}) {
		args = append(args, "./"+d+"/...")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	g.packages = slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool {
		p = strings.TrimPrefix(p, repository) + "/"
		return strings.Contains(p, "/bench/") || slices.ContainsFunc(g.directories, func(d string) bool {
			d, found := strings.CutPrefix(d, not)
			return found && strings.HasPrefix(p, d+"/")
		})
	})
	return nil
}

// test runs go test for each group and gives what it says to the report.
func test(ctx context.Context, r *report, groups []group) error {
	env, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	for i := range groups {
		if err := groups[i].list(ctx); err != nil {
			return err
		}
	}
	for _, g := range groups {
		if len(g.packages) > 0 && ctx.Err() == nil {
			err = errors.Join(err, g.test(ctx, r, env))
		}
	}
	return err
}

// test runs go test once. An error is none that the report tells.
func (g group) test(ctx context.Context, r *report, env []string) error {
	args := append([]string{"test", "-json"}, g.flags...)
	if env != nil {
		args = append(args, "-exec", "env -u GOTMPDIR")
	}
	args = append(args, g.packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := r.read(out); err != nil {
		_, _ = io.Copy(io.Discard, out) // what isn't read keeps go test from ending
		return errors.Join(err, cmd.Wait())
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && r.failed() {
		return nil // the report says what failed
	}
	return err
}
