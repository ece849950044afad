package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTablesNameWhatExists holds costs.txt and long.txt to the packages and tests of the repository.
func TestTablesNameWhatExists(t *testing.T) {
	t.Chdir("../..")
	all, err := packages(t.Context(), options{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]string{}
	for _, p := range all {
		if tests[p.name()], err = p.tests(); err != nil {
			t.Fatal(err)
		}
	}
	known, err := costs(costsText)
	if err != nil {
		t.Fatal(err)
	}
	for name := range known {
		pkg, test, of := strings.Cut(name, ".")
		if names, found := tests[pkg]; !found || of && !slices.Contains(names, test) {
			t.Errorf("costs.txt: there is no %s", name)
		}
	}
	long, err := longTests(longText)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range long {
		if !slices.Contains(tests[l.pkg], l.test) {
			t.Errorf("long.txt: %s has no %s", l.pkg, l.test)
		}
		if slices.ContainsFunc(long[:i], func(o longTest) bool { return o.pkg == l.pkg && o.test == l.test }) {
			t.Errorf("long.txt: %s %s stands there twice", l.pkg, l.test)
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(shards)), slices.Collect(maps.Keys(servers))) {
		if tests[name] == nil {
			t.Errorf("shards or servers: there is no %s", name)
		}
	}
}

func TestSlicesTakeAboutEquallyLong(t *testing.T) {
	long, err := longTests(longText)
	if err != nil {
		t.Fatal(err)
	}
	var sums [longSlices]time.Duration
	for _, l := range long {
		sums[l.slice-1] += l.wall
	}
	if least, most := slices.Min(sums[:]), slices.Max(sums[:]); most > 2*least {
		t.Errorf("the slices take %v", sums)
	}
}

func TestASliceIsFollowedByTheOthers(t *testing.T) {
	long, err := longTests(longText)
	if err != nil {
		t.Fatal(err)
	}
	all := []pkg{}
	for _, l := range long {
		if !slices.ContainsFunc(all, func(p pkg) bool { return p.name() == l.pkg }) {
			all = append(all, pkg{ImportPath: repository + l.pkg})
		}
	}
	jobs, err := longJobs(all, slice{2, longSlices}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if j.slice != 2 || !j.must {
			t.Errorf("without a budget %s of slice %d runs, needed: %t", j.name, j.slice, j.must)
		}
	}
	if jobs, err = longJobs(all, slice{2, longSlices}, 24*time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	var order []int
	names := map[string]bool{}
	for _, j := range jobs {
		if names[j.name] {
			t.Errorf("two jobs have the name %s", j.name)
		}
		names[j.name] = true
		if !j.long {
			t.Errorf("%s is not long", j.name)
		}
		if len(order) == 0 || order[len(order)-1] != j.slice {
			order = append(order, j.slice)
		}
	}
	if !slices.Equal(order, []int{2, 3, 4, 5, 6, 1}) {
		t.Errorf("the slices come in the order %v", order)
	}
	for _, l := range long {
		n := 0
		for _, j := range jobs {
			if j.pkg.name() == l.pkg && j.slice == l.slice && regexp.MustCompile(j.pattern).MatchString(l.test) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d jobs run %s %s", n, l.pkg, l.test)
		}
	}
}

func TestShardsHaveEachTestOnce(t *testing.T) {
	tests := []string{"TestA", "TestB", "TestC", "TestD", "TestE"}
	var all []string
	for _, part := range deal(tests, 2, func(n string) float64 { return map[string]float64{"TestC": 100}[n] }) {
		if slices.Contains(part, "TestC") && len(part) != 1 {
			t.Errorf("the longest test has company: %v", part)
		}
		all = append(all, part...)
	}
	slices.Sort(all)
	if !slices.Equal(all, tests) {
		t.Errorf("the shards have %v", all)
	}
	if p := anyOf([]string{"TestA", "TestB"}); p != "^(TestA|TestB)$" {
		t.Errorf("the pattern is %s", p)
	}
}
