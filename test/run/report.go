package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// line is one of `go test -json` (go doc test2json); of a build that fails, of `go build -json`.
type line struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// run of a package's tests, or of a part of them.
type packageRun struct {
	usage
	stalled                 time.Duration // how long the machine was stalled during it
	passed, failed, skipped int
}

// waited is the time in which the package kept no core busy: it waited for a server, a lease or a limit.
func (p packageRun) waited() time.Duration { return max(p.Wall-p.CPU, 0) }

// report prints what happens, and remembers it for the summary. It is safe for concurrent use.
type report struct {
	mu      sync.Mutex
	out     io.Writer
	started time.Time
	machine *machine
	runs    map[string]*packageRun // by the job's name
	// wrote is what the tests of a job wrote that haven't passed, by name; the job itself is "".
	wrote    map[string]map[string][]string
	skips    map[string]map[string]int // by reason, then by test: how many of its cases, or itself
	slowest  []slow                    // the tests that took longest, the longest first
	broken   []failure
	notRun   []job    // when the budget was used up
	repeats  []string // what the second runs of failed jobs showed
	listed   []string // the long tests of all slices
	progress progress
}

// failure is what failed: a test, or a job without a failed test.
type failure struct{ job, what string }

// slow is a test with its cases.
type slow struct {
	took time.Duration // without the time for which a parallel test waited for its turn
	name string
}

// slowTests are listed at the end.
const slowTests = 40

func newReport(out io.Writer) *report {
	return &report{
		out: out, started: time.Now(), runs: map[string]*packageRun{}, wrote: map[string]map[string][]string{}, skips: map[string]map[string]int{},
	}
}

// run returns the run of a job.
func (r *report) run(job string) *packageRun {
	if r.runs[job] == nil {
		r.runs[job] = &packageRun{}
	}
	return r.runs[job]
}

// line prints a line.
func (r *report) line(format string, args ...any) { r.write(fmt.Sprintf(format+"\n", args...)) }

func (r *report) write(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = io.WriteString(r.out, text)
}

// begin is called before the first job starts.
func (r *report) begin(jobs []job, capacity float64, m *machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine, r.progress = m, newProgress(jobs, capacity)
}

// starts is called when a job starts.
func (r *report) starts(j job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.starts(j)
}

// waits prints the running jobs.
func (r *report) waits() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progressLine("runs  %s%s", strings.Join(slices.Sorted(maps.Keys(r.progress.running)), ", "), r.progress.text())
}

// read reads what a job's tests say until they have ended.
func (r *report) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 {
			var l line
			if json.Unmarshal(text, &l) != nil {
				r.write(string(text))
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
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case l.Action == "output":
		if r.wrote[l.Package] == nil {
			r.wrote[l.Package] = map[string][]string{}
		}
		r.wrote[l.Package][l.Test] = append(r.wrote[l.Package][l.Test], l.Output)
	case l.Test != "":
		r.testEnded(l)
	}
}

func (r *report) testEnded(l line) {
	p := r.run(l.Package)
	switch l.Action {
	case "pass":
		p.passed++
	case "fail":
		p.failed++
		r.broken = append(r.broken, failure{l.Package, l.Package + " " + l.Test})
		r.print(r.wrote[l.Package][l.Test])
	case "skip":
		p.skipped++
		why := reason(r.wrote[l.Package][l.Test])
		if r.skips[why] == nil {
			r.skips[why] = map[string]int{}
		}
		test, _, _ := strings.Cut(l.Test, "/")
		r.skips[why][packageOf(l.Package)+" "+test]++
	default:
		return // it goes on
	}
	delete(r.wrote[l.Package], l.Test)
	if !strings.Contains(l.Test, "/") {
		r.slowest = append(r.slowest, slow{time.Duration(l.Elapsed * float64(time.Second)), packageOf(l.Package) + " " + l.Test})
		slices.SortStableFunc(r.slowest, func(a, b slow) int { return cmp.Compare(b.took, a.took) })
		r.slowest = r.slowest[:min(len(r.slowest), slowTests)]
	}
}

// packageOf is the package of a job.
func packageOf(job string) string {
	pkg, _, _ := strings.Cut(job, " ")
	return pkg
}

// ends is called when a job has ended, with what kept it from running or being measured. It reports whether the job failed.
func (r *report) ends(j job, u usage, wrong error) (failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.run(j.name)
	p.usage = u
	now := time.Now()
	p.stalled = r.machine.stalled(now.Add(-u.Wall), now)
	wrote := r.wrote[j.name]
	delete(r.wrote, j.name)
	if wrong != nil {
		wrote = addTo(wrote, wrong.Error()+"\n")
	}
	if (u.Code != 0 || wrong != nil) && p.failed == 0 {
		p.failed++ // it panicked, took too long, or failed outside its tests
		wrote = addTo(wrote, fmt.Sprintf("exit code %d\n", u.Code))
		r.broken = append(r.broken, failure{j.name, j.name})
	}
	for _, left := range u.Left {
		r.progressLine("%s left a process running, which was ended: %s", j.name, left)
	}
	r.progress.ends(j)
	if p.failed == 0 {
		r.progressLine("ok    %s  %s, %s of CPU%s", j.name, seconds(u.Wall), seconds(u.CPU), r.progress.text())
		return false
	}
	for _, test := range slices.Sorted(maps.Keys(wrote)) {
		if test != "" { // it was running when the binary ended
			r.broken = append(r.broken, failure{j.name, j.name + " " + test + ", which was running when its package ended"})
			r.print(wrote[test])
		}
	}
	r.print(wrote[""])
	r.progressLine("FAIL  %s  %s, %s of CPU%s", j.name, seconds(u.Wall), seconds(u.CPU), r.progress.text())
	return true
}

func addTo(wrote map[string][]string, text string) map[string][]string {
	if wrote == nil {
		wrote = map[string][]string{}
	}
	wrote[""] = append(wrote[""], text)
	return wrote
}

func (r *report) progressLine(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// notBuilt is called for a package that doesn't compile.
func (r *report) notBuilt(name string, wrote []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run(name).failed++
	r.broken = append(r.broken, failure{name, name})
	r.print(wrote)
}

// has reports whether a package or job has a result.
func (r *report) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[name] != nil
}

// due is called with the jobs that didn't start.
func (r *report) due(jobs []job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notRun = jobs
}

// takeFailures forgets that a job failed, and returns how.
func (r *report) takeFailures(j job) (first []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.broken {
		if f.job == j.name {
			first = append(first, f.what)
		}
	}
	r.broken = slices.DeleteFunc(r.broken, func(f failure) bool { return f.job == j.name })
	delete(r.runs, j.name)
	return first
}

// repeated notes both results of a job that ran twice.
func (r *report) repeated(j job, first []string, passed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	second := "failed again"
	if passed {
		second = "passed"
	}
	r.repeats = append(r.repeats, fmt.Sprintf("%s failed while the machine was stalled (%s), and %s alone", j.name, strings.Join(first, "; "), second))
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

// setUp begins the reason of a test that was skipped because the machine lacks something that it could have.
const setUp = "set-up: "

// long begins the reason of a test that was skipped because it takes long.
const long = "long: "

// failed reports whether anything has failed. In CI a test may not be skipped for a missing step of the set-up, and a long test must have its
// turn.
func (r *report) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.broken)+len(r.unlisted()) > 0 || os.Getenv("CI") != "" && r.lacksSetUp()
}

// unlisted are the tests that were skipped because they take long, and which no slice of the long tests has.
func (r *report) unlisted() (names []string) {
	for why, tests := range r.skips {
		for test := range tests {
			if strings.HasPrefix(why, long) && !slices.Contains(r.listed, test) && !slices.Contains(names, test) {
				names = append(names, test)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (r *report) lacksSetUp() bool {
	for why := range r.skips {
		if strings.HasPrefix(why, setUp) {
			return true
		}
	}
	return false
}

// summary prints what ran.
func (r *report) summary() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all packageRun
	t := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\nwall\tCPU\twaited\tstalled\tmemory\tpassed\tfailed\tskipped\t\n")
	byWall := slices.SortedFunc(maps.Keys(r.runs), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.runs[b].Wall, r.runs[a].Wall), cmp.Compare(a, b))
	})
	for _, name := range byWall {
		p := r.runs[name]
		p.row(t, name)
		all.Wall, all.CPU, all.Memory = all.Wall+p.Wall, all.CPU+p.CPU, max(all.Memory, p.Memory)
		all.passed, all.failed, all.skipped = all.passed+p.passed, all.failed+p.failed, all.skipped+p.skipped
	}
	all.row(t, "all")
	_ = t.Flush()
	r.details()
	if r.machine != nil {
		fmt.Fprintf(r.out, "\n%s\n", r.machine.said())
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped in %s\n", all.passed, all.failed, all.skipped, time.Since(r.started).Round(time.Second))
}

// row of the table. Memory is the largest process's, in MB.
func (p packageRun) row(t io.Writer, name string) {
	fmt.Fprintf(t, "%.1f\t%.1f\t%.1f\t%.1f\t%d\t%d\t%d\t%d\t  %s\n", p.Wall.Seconds(), p.CPU.Seconds(), p.waited().Seconds(), p.stalled.Seconds(),
		p.Memory>>20, p.passed, p.failed, p.skipped, name)
}

// costs are the lines of costs.txt as this run measured them: packages, and the tests of divided packages.
func (r *report) costs() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := map[string]usage{}
	for name, p := range r.runs {
		u := sums[packageOf(name)]
		sums[packageOf(name)] = usage{Wall: u.Wall + p.Wall, CPU: u.CPU + p.CPU}
	}
	for _, s := range r.slowest {
		if pkg, test, _ := strings.Cut(s.name, " "); shards[pkg] > 0 {
			sums[pkg+"."+test] = usage{Wall: s.took}
		}
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if u := sums[name]; u.Wall >= light.wall {
			fmt.Fprintf(&text, "%s %.0f %.0f\n", name, u.Wall.Seconds(), u.CPU.Seconds())
		}
	}
	return text.String()
}

// details prints slow tests, skipped tests with their reasons, and failures.
func (r *report) details() {
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
	if len(r.notRun) > 0 {
		fmt.Fprintln(r.out, "\nnot started, and due:")
		for _, j := range r.notRun {
			fmt.Fprintln(r.out, "  "+strings.TrimSpace(j.name+" "+j.pattern))
		}
	}
	if len(r.repeats) > 0 {
		fmt.Fprintln(r.out, "\nrun twice:")
		for _, text := range r.repeats {
			fmt.Fprintln(r.out, "  "+text)
		}
	}
	if len(r.broken) > 0 {
		fmt.Fprintln(r.out, "\nfailed:")
		for _, f := range r.broken {
			fmt.Fprintln(r.out, "  "+f.what)
		}
	}
	if names := r.unlisted(); len(names) > 0 {
		fmt.Fprintln(r.out, "\nfailed: long tests that never run, because test/run/long.txt lacks them:")
		for _, name := range names {
			fmt.Fprintln(r.out, "  "+name)
		}
	}
	if r.lacksSetUp() && os.Getenv("CI") != "" {
		fmt.Fprintln(r.out, "\nfailed: tests were skipped for a missing step of the set-up (above)")
	}
}
