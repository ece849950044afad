package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// job is one run of a test binary.
type job struct {
	pkg     pkg
	name    string // of the package, with the part of it that runs
	pattern string // of -test.run; all tests if it is empty
	long    bool   // without -test.short
	slice   int    // of the long tests, from 1; 0 for no slice
	must    bool   // run it also when the budget is used up
	cost
}

// cost is what a job is expected to take: seconds alone on the machine, and how many cores it keeps busy on average. It decides the order and
// how much runs side by side, never what runs.
type cost struct {
	wall  time.Duration
	cores float64
}

// light is the cost of a package that costs doesn't name.
var light = cost{wall: 4 * time.Second, cores: 0.5}

// shards are packages whose tests run one after another, for minutes: each shard is a process with an installation of its own.
var shards = map[string]int{"test/clusterapi": 2, "test/e2e": 3}

//go:embed costs.txt
var costsText string

// table splits text into rows of exactly so many fields, and skips comments.
func table(text string, fields int) (rows [][]string, err error) {
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if line := strings.TrimSpace(s.Text()); line != "" && !strings.HasPrefix(line, "#") {
			row := strings.Fields(line)
			if len(row) != fields {
				return nil, fmt.Errorf("%q has %d fields, want %d", line, len(row), fields)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// costs reads costs.txt.
func costs(text string) (map[string]cost, error) {
	rows, err := table(text, 3)
	if err != nil {
		return nil, fmt.Errorf("test/run/costs.txt: %w", err)
	}
	all := map[string]cost{}
	for _, row := range rows {
		seconds, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			return nil, fmt.Errorf("test/run/costs.txt: %s: %w", row[0], err)
		}
		cpu, err := strconv.ParseFloat(row[2], 64)
		if err != nil {
			return nil, fmt.Errorf("test/run/costs.txt: %s: %w", row[0], err)
		}
		wall := max(time.Duration(seconds*float64(time.Second)), time.Second)
		// Three jobs always fit on two cores. Otherwise a job that computes all the time would wait until the end, when few jobs are left beside it.
		all[row[0]] = cost{wall: wall, cores: min(max(cpu/wall.Seconds(), 0.05), 0.7)}
	}
	return all, nil
}

// slice K of N of the long tests.
type slice struct{ n, of int }

func (s *slice) String() string { return fmt.Sprintf("%d/%d", s.n, s.of) }

// Set reads K/N.
func (s *slice) Set(text string) error {
	k, n, ok := strings.Cut(text, "/")
	var err1, err2 error
	s.n, err1 = strconv.Atoi(k)
	s.of, err2 = strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil || s.n < 1 || s.n > s.of {
		return fmt.Errorf("%q is not K/N with 1 ≤ K ≤ N", text)
	}
	return nil
}

// plan makes the jobs, the longest first.
func plan(all []pkg, o options) (jobs []job, err error) {
	known, err := costs(costsText)
	if err != nil {
		return nil, err
	}
	if o.slice.of > 0 && !o.race {
		return longJobs(all, o.slice, o.budget, known)
	}
	for _, p := range all {
		of := jobsOf(p, o)
		if of, err = withTests(of, known); err != nil {
			return nil, err
		}
		jobs = append(jobs, of...)
	}
	for i := range jobs {
		jobs[i].long = o.long
		jobs[i].must = o.since != "" && jobs[i].pkg.rank == changedItself
		jobs[i].cost = light
		if c, ok := known[jobs[i].pkg.name()]; ok {
			parts := float64(len(jobsOf(jobs[i].pkg, o)))
			jobs[i].cost = cost{wall: time.Duration(float64(c.wall) / parts), cores: c.cores}
		}
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Or(cmp.Compare(a.pkg.rank, b.pkg.rank), cmp.Compare(b.wall, a.wall)) })
	return jobs, nil
}

// jobsOf is one job for a package, or one for each of its shards; a run of chosen tests isn't divided.
func jobsOf(p pkg, o options) (jobs []job) {
	n := max(shards[p.name()], 1)
	if chooses(o.flags) {
		n = 1
	}
	for k := range n {
		j := job{pkg: p, name: p.name()}
		if n > 1 {
			j.name = fmt.Sprintf("%s (%d of %d)", p.name(), k+1, n)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// withTests deals a package's tests out to its shards.
func withTests(of []job, known map[string]cost) ([]job, error) {
	if len(of) == 1 {
		return of, nil
	}
	tests, err := of[0].pkg.tests()
	if err != nil {
		return nil, err
	}
	dealt := deal(tests, len(of), func(t string) float64 { return known[of[0].pkg.name()+"."+t].wall.Seconds() })
	for k := range of {
		of[k].pattern = anyOf(dealt[k])
	}
	return of, nil
}

// deal divides tests so that all parts take about equally long: the longest first, each to the part that has least.
func deal(tests []string, parts int, seconds func(string) float64) [][]string {
	order := slices.Clone(tests)
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(seconds(b), seconds(a)) })
	dealt, sums := make([][]string, parts), make([]float64, parts)
	for _, t := range order {
		least := 0
		for k := range sums {
			if sums[k] < sums[least] {
				least = k
			}
		}
		dealt[least] = append(dealt[least], t)
		sums[least] += max(seconds(t), 0.5)
	}
	return dealt
}

// anyOf is the pattern of -test.run that matches just these tests.
func anyOf(tests []string) string {
	var quoted []string
	for _, t := range tests {
		quoted = append(quoted, regexp.QuoteMeta(t))
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}
