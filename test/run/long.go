package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"
)

//go:embed long.txt
var longText string

// longSlices is how many slices long.txt has.
const longSlices = 6

// longTest is a test that is skipped with -short, or of which cases are.
type longTest struct {
	slice     int
	pkg, test string
	wall      time.Duration
}

// longTests reads long.txt.
func longTests(text string) (all []longTest, err error) {
	rows, err := table(text, 4)
	if err != nil {
		return nil, fmt.Errorf("test/run/long.txt: %w", err)
	}
	for _, row := range rows {
		slice, err := strconv.Atoi(row[0])
		if err != nil || slice < 1 || slice > longSlices {
			return nil, fmt.Errorf("test/run/long.txt: slice %s of %s %s is not a number from 1 to %d", row[0], row[1], row[2], longSlices)
		}
		seconds, err := strconv.Atoi(row[3])
		if err != nil {
			return nil, fmt.Errorf("test/run/long.txt: %s %s: %w", row[1], row[2], err)
		}
		all = append(all, longTest{slice, row[1], row[2], time.Duration(seconds) * time.Second})
	}
	return all, nil
}

// longJobs are the jobs of a slice of the long tests, one for each package, and after them the jobs of as many of the slices that follow as a
// budget has time for.
func longJobs(all []pkg, s slice, budget time.Duration, known map[string]cost) ([]job, error) {
	long, err := longTests(longText)
	if err != nil {
		return nil, err
	}
	if s.of != longSlices {
		return nil, fmt.Errorf("-slice %s: test/run/long.txt has %d slices", &s, longSlices)
	}
	var jobs []job
	var expected time.Duration
	for i := range s.of {
		if i > 0 && expected >= budget {
			break
		}
		k := (s.n-1+i)%s.of + 1
		var of []job
		for _, p := range all {
			of = append(of, longJobsOf(p, k, long, known)...)
		}
		for i := range of {
			of[i].must = k == s.n
		}
		slices.SortStableFunc(of, func(a, b job) int { return cmp.Compare(b.wall, a.wall) })
		for _, j := range of {
			expected += time.Duration(float64(j.wall) * j.cores / (share * float64(runtime.NumCPU())))
		}
		jobs = append(jobs, of...)
	}
	return jobs, nil
}

// longJobsOf are the jobs of a package's tests in a slice: one, or several for a package that is divided, because its tests run one after another.
func longJobsOf(p pkg, slice int, long []longTest, known map[string]cost) (jobs []job) {
	seconds := map[string]float64{}
	var tests []string
	for _, l := range long {
		if l.slice == slice && l.pkg == p.name() {
			tests, seconds[l.test] = append(tests, l.test), l.wall.Seconds()
		}
	}
	if len(tests) == 0 {
		return nil
	}
	cores := light.cores
	if c, ok := known[p.name()]; ok {
		cores = c.cores
	}
	for n, part := range deal(tests, min(max(shards[p.name()], 1), len(tests)), func(t string) float64 { return seconds[t] }) {
		j := job{pkg: p, name: fmt.Sprintf("%s (slice %d)", p.name(), slice), pattern: anyOf(part), long: true, slice: slice, cost: cost{cores: cores}}
		if shards[p.name()] > 0 {
			j.name = fmt.Sprintf("%s (slice %d, part %d)", p.name(), slice, n+1)
		}
		for _, t := range part {
			j.wall += time.Duration(seconds[t] * float64(time.Second))
		}
		jobs = append(jobs, j)
	}
	return jobs
}
