// Command run runs the tests of all modules by one go test, and says at the end what ran and how long each part took. A part
// that fails keeps none from running.
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

const usage = `Usage: run MODULE… [-- FLAG…]

Runs the tests of the modules (directories at or below this one), with the flags of go test. Like go test it prints a line for
each package that passes, and all that a failed test wrote. At the end come a table of the parts, the slowest tests, why tests were skipped, what failed,
and a line such as "1234 passed, 0 failed, 5 skipped in 16m40s".

Tests keep their files in memory, in /dev/shm, where 10 GB of it are free; TMPDIR names another directory.

Exit codes: 0 all passed, 1 something failed, 2 wrong usage.
`

func main() {
	modules, flags := os.Args[1:], []string(nil)
	if i := slices.Index(modules, "--"); i >= 0 {
		modules, flags = modules[:i], modules[i+1:]
	}
	if len(modules) == 0 || strings.HasPrefix(modules[0], "-") {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	// An interrupt goes to all of the terminal's processes; go test ends by it, and what ran is still told.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r := newReport(os.Stdout, modules)
	err := test(ctx, r, modules, flags)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
	}
	if r.summary(); err != nil || r.failed() {
		os.Exit(1)
	}
}

// packages are those of the modules that have tests, or may have, in the order of the modules. Those below bench have benchmarks alone, and to
// link them takes long; the linters see that they can be built.
func packages(ctx context.Context, modules []string) (all []string, err error) {
	args := []string{"list"}
	for _, m := range modules {
		args = append(args, "./"+m+"/...")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return strings.Contains(p+"/", "/bench/") }), nil
}

// test runs go test and gives what it says to the report.
func test(ctx context.Context, r *report, modules, flags []string) error {
	env, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	all, err := packages(ctx, modules)
	if err != nil {
		return err
	}
	args := append(append([]string{"test", "-json"}, flags...), all...)
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
