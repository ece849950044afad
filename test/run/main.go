// Command run builds the tests of all modules, runs them side by side, and reports results, costs and skipped tests. A package
// that fails stops no other.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stoker-k8s/stoker/local/gobuild"
)

const help = `Usage: run [FLAG…] [DIRECTORY…] [-- FLAG OF GO TEST…]

Builds the tests of all packages first, so that no compiler competes with a running test, then runs the test binaries side by side, the
longest first. Directories limit it to the packages in and below them.

  -long          run the long tests too (without it, as "go test -short")
  -slice K/N     run only the long tests of slice K of N, as test/run/long.txt lists them
  -race          run with the race detector, and only packages whose code starts goroutines or shares memory between them
  -since REV     run only packages that depend on a file that changed since this commit; with -race, also the packages of -slice
  -budget D      start nothing that is expected to end after this time, and print what is due; slice K of the long tests, or with -race
                 packages that changed themselves, run all the same; the slices after K follow while time is left
  -alone         run one package at a time

Tests keep their files in memory, in /dev/shm, where 10 GB of it are free; TMPDIR names another directory.

Examples:
  run                                    # as make test
  run pkg/loop -- -run TestPause -count 20
  run -race -since HEAD~3
  run -slice 2/6 -budget 8m

bin/test/costs.txt has the costs that the run measured, in the form of test/run/costs.txt.

Exit codes: 0 all passed, 1 something failed, 2 wrong usage.
`

// options of the command line.
type options struct {
	long, race, alone bool
	slice             slice
	since             string
	budget            time.Duration
	directories       []string
	flags             []string // of the test binaries
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == measureCommand {
		os.Exit(measure(os.Args[2], os.Args[3:]))
	}
	if dir := os.Getenv(stashVariable); dir != "" {
		if err := stash(dir, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "run:", err)
			os.Exit(1)
		}
		return
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "run: %v\n\n%s", err, help)
		os.Exit(2)
	}
	// The go commands of this program and of the tests have the flags of the Makefile, so that no package is compiled twice.
	flags := os.Getenv("GOFLAGS") + " " + strings.Join(gobuild.Flags, " ")
	// Compilers, and servers while they start, collect garbage for much of their time. Tests start hundreds of API servers.
	gogc := cmp.Or(os.Getenv("GOGC"), gobuild.GOGC)
	if err := errors.Join(os.Setenv("GOFLAGS", flags), os.Setenv("CGO_ENABLED", "0"), os.Setenv("GOGC", gogc)); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
	// After Ctrl-C the tests end, and this program prints what ran.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.long, "long", false, "")
	f.BoolVar(&o.race, "race", false, "")
	f.BoolVar(&o.alone, "alone", false, "")
	f.Var(&o.slice, "slice", "")
	f.StringVar(&o.since, "since", "", "")
	f.DurationVar(&o.budget, "budget", 0, "")
	own, flags := args, []string(nil)
	for i, arg := range args {
		if arg == "--" {
			own, flags = args[:i], args[i+1:]
			break
		}
	}
	if err := f.Parse(own); err != nil {
		return o, err
	}
	for _, d := range f.Args() {
		if strings.HasPrefix(d, "-") {
			return o, fmt.Errorf("%q: flags come before directories", d)
		}
		d = strings.Trim(strings.TrimSuffix(strings.TrimPrefix(d, "./"), "..."), "/")
		o.directories = append(o.directories, cmp.Or(d, "."))
	}
	for _, arg := range flags {
		o.flags = append(o.flags, testFlag(arg))
	}
	if o.long && o.slice.of > 0 {
		return o, errors.New("-long and -slice exclude each other")
	}
	if o.slice.of > 0 && !o.race && chooses(o.flags) {
		return o, errors.New("-slice chooses the tests, and so does -run")
	}
	return o, nil
}

// chooses reports whether flags of a test binary choose the tests that run.
func chooses(flags []string) bool {
	return slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "-test.run") })
}

// testFlag translates a flag of go test into the test binary's flag, and leaves values unchanged.
func testFlag(arg string) string {
	name, isFlag := strings.CutPrefix(arg, "-")
	if !isFlag || strings.HasPrefix(name, "update") {
		return arg
	}
	return "-test." + strings.TrimPrefix(strings.TrimPrefix(name, "-"), "test.")
}

// run builds and runs the tests. It reports whether all passed.
func run(ctx context.Context, o options, out io.Writer) (bool, error) {
	began := time.Now()
	r := newReport(out)
	listed, err := longTests(longText)
	if err != nil {
		return false, err
	}
	for _, l := range listed {
		r.listed = append(r.listed, l.pkg+" "+l.test)
	}
	env, remove, note, err := scratch()
	if err != nil {
		return false, err
	}
	defer remove()
	if note != "" {
		r.line("%s", note)
	}
	all, err := packages(ctx, o)
	if err != nil {
		return false, err
	}
	if o.since != "" {
		if all, err = affected(ctx, all, o.since, o.slice); err != nil {
			return false, err
		}
	}
	jobs, err := plan(all, o)
	if err != nil {
		return false, err
	}
	b, err := build(ctx, r, jobs, o.race)
	if b != nil {
		defer b.remove()
	}
	if err != nil {
		return false, err
	}
	r.line("built %d packages in %s", len(b.binaries), time.Since(began).Round(time.Second))
	p := pool{report: r, built: b, env: env, options: o, deadline: deadline(began, o.budget)}
	p.run(ctx, jobs)
	p.again(ctx)
	r.summary()
	if err := errors.Join(os.MkdirAll(filepath.Join("bin", "test"), 0o755), os.WriteFile(filepath.Join("bin", "test", "costs.txt"), []byte(r.costs()), 0o600)); err != nil {
		return false, err
	}
	return !r.failed() && ctx.Err() == nil, nil
}

// deadline is when a budget is used up; the zero time without a budget.
func deadline(began time.Time, budget time.Duration) time.Time {
	if budget == 0 {
		return time.Time{}
	}
	return began.Add(budget)
}
