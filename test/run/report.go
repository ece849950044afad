package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// line is one of `go test -json` (go doc test2json); of a build that fails, of `go build -json`.
type line struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// part of the tests: a module, or a package of the module test.
type part struct {
	took                              time.Duration // of its packages, added up
	packages, passed, failed, skipped int
}

// report prints what happens, and remembers it for the summary.
type report struct {
	out     io.Writer
	modules []string
	started time.Time
	parts   map[string]*part
	// wrote is what the tests of a package wrote that haven't passed, by name; the package itself is "".
	wrote map[string]map[string][]string
	// failures are the failed tests of a package that has not ended.
	failures map[string]int
	skips    map[string]map[string]int // by reason, then by test: how many of its cases, or itself
	slowest  []slow                    // the tests that took longest, the longest first
	broken   []string                  // what failed, by name: tests, and packages without a failed test
}

// slow is a test with its cases.
type slow struct {
	took time.Duration // without the time for which a parallel test waited for its turn
	name string
}

// slowTests are told at the end.
const slowTests = 40

func newReport(out io.Writer, modules []string) *report {
	return &report{
		out: out, modules: modules, started: time.Now(), parts: map[string]*part{}, wrote: map[string]map[string][]string{},
		failures: map[string]int{}, skips: map[string]map[string]int{},
	}
}

const repository = "github.com/stoker-k8s/stoker/"

// part returns the part that a package belongs to.
func (r *report) part(pkg string) *part {
	pkg = strings.TrimPrefix(pkg, repository)
	name := pkg
	for _, m := range r.modules {
		if m != "test" && strings.HasPrefix(pkg+"/", m+"/") {
			name = m
		}
	}
	if r.parts[name] == nil {
		r.parts[name] = &part{}
	}
	return r.parts[name]
}

// read reads until go test has nothing more to say.
func (r *report) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 {
			var l line
			if json.Unmarshal(text, &l) != nil {
				_, _ = r.out.Write(text) // go's own words, such as what is wrong with the command line
			} else {
				r.take(l)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(l line) {
	switch {
	case l.Action == "build-output":
		_, _ = io.WriteString(r.out, l.Output)
	case l.Action == "output":
		if r.wrote[l.Package] == nil {
			r.wrote[l.Package] = map[string][]string{}
		}
		r.wrote[l.Package][l.Test] = append(r.wrote[l.Package][l.Test], l.Output)
	case l.Test != "":
		r.testEnded(l)
	case l.Action == "pass" || l.Action == "fail" || l.Action == "skip":
		r.packageEnded(l)
	}
}

func (r *report) testEnded(l line) {
	p := r.part(l.Package)
	switch l.Action {
	case "pass":
		p.passed++
	case "fail":
		p.failed++
		r.failures[l.Package]++
		r.broken = append(r.broken, strings.TrimPrefix(l.Package, repository)+" "+l.Test)
		r.print(r.wrote[l.Package][l.Test])
	case "skip":
		p.skipped++
		why := reason(r.wrote[l.Package][l.Test])
		if r.skips[why] == nil {
			r.skips[why] = map[string]int{}
		}
		test, _, _ := strings.Cut(l.Test, "/")
		r.skips[why][strings.TrimPrefix(l.Package, repository)+" "+test]++
	default:
		return // it goes on
	}
	delete(r.wrote[l.Package], l.Test)
	if !strings.Contains(l.Test, "/") {
		r.slowest = append(r.slowest, slow{time.Duration(l.Elapsed * float64(time.Second)), strings.TrimPrefix(l.Package, repository) + " " + l.Test})
		slices.SortStableFunc(r.slowest, func(a, b slow) int { return cmp.Compare(b.took, a.took) })
		r.slowest = r.slowest[:min(len(r.slowest), slowTests)]
	}
}

func (r *report) packageEnded(l line) {
	wrote := r.wrote[l.Package]
	delete(r.wrote, l.Package)
	if l.Action == "skip" {
		return // it has no tests
	}
	p := r.part(l.Package)
	p.packages++
	p.took += time.Duration(l.Elapsed * float64(time.Second))
	if l.Action == "pass" {
		for _, text := range wrote[""] {
			if strings.HasPrefix(text, "ok ") {
				r.print([]string{text})
			}
		}
		return
	}
	if r.failures[l.Package] == 0 {
		p.failed++ // it didn't compile, panicked, took too long, or failed outside its tests
		r.broken = append(r.broken, strings.TrimPrefix(l.Package, repository))
	}
	for _, test := range slices.Sorted(maps.Keys(wrote)) {
		if test != "" {
			r.broken = append(r.broken, strings.TrimPrefix(l.Package, repository)+" "+test+", which was running when its package ended")
			r.print(wrote[test]) // it was running when the package ended
		}
	}
	r.print(wrote[""])
}

// print prints what a test wrote, without go's notes of which test is speaking.
func (r *report) print(wrote []string) {
	for _, text := range wrote {
		if !strings.HasPrefix(text, "=== ") {
			_, _ = io.WriteString(r.out, text)
		}
	}
}

var place = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason is why a test was skipped, which is the last that it wrote.
func reason(wrote []string) string {
	for _, text := range slices.Backward(wrote) {
		if at := place.FindString(text); at != "" {
			return strings.TrimSpace(text[len(at):])
		}
	}
	return "no reason"
}

// failed reports whether anything has.
func (r *report) failed() bool {
	for _, p := range r.parts {
		if p.failed > 0 {
			return true
		}
	}
	return false
}

// summary prints what ran.
func (r *report) summary() {
	var all part
	t := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\ntook\tpackages\tpassed\tfailed\tskipped\t\n")
	for _, name := range slices.Sorted(maps.Keys(r.parts)) {
		p := r.parts[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t  %s\n", p.took.Round(time.Second), p.packages, p.passed, p.failed, p.skipped, name)
		all.passed, all.failed, all.skipped = all.passed+p.passed, all.failed+p.failed, all.skipped+p.skipped
	}
	_ = t.Flush()
	fmt.Fprintln(r.out, "\nslowest:")
	for _, test := range r.slowest {
		fmt.Fprintf(r.out, "%8s  %s\n", test.took.Round(time.Second), test.name)
	}
	for _, why := range slices.Sorted(maps.Keys(r.skips)) {
		fmt.Fprintf(r.out, "\nskipped, %s:\n", why)
		for _, test := range slices.Sorted(maps.Keys(r.skips[why])) {
			fmt.Fprintf(r.out, "%5d of %s\n", r.skips[why][test], test)
		}
	}
	if len(r.broken) > 0 {
		fmt.Fprintln(r.out, "\nfailed:")
		for _, name := range r.broken {
			fmt.Fprintln(r.out, "  "+name)
		}
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped in %s\n", all.passed, all.failed, all.skipped, time.Since(r.started).Round(time.Second))
}
