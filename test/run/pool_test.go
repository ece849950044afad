package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAJobThatFailsOutsideATestFails runs programs in place of test binaries, which end in ways that go test has words for and test2json has not.
func TestAJobThatFailsOutsideATestFails(t *testing.T) {
	for script, failed := range map[string]bool{
		"printf '\\026=== RUN   TestX\\n\\026--- PASS: TestX (0.00s)\\n\\026PASS\\n'": false,
		"echo no server; exit 1": true,
		"exit 3":                 true,
		"printf '\\026PASS\\n'; echo 'events that are not as the catalogue says'; exit 1": true,
		"kill -9 $$":             true,
		"kill -9 $PPID; sleep 1": true, // the process that measures it
	} {
		t.Run(script, func(t *testing.T) {
			dir := t.TempDir()
			binary := filepath.Join(dir, "x.test")
			if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			r := newReport(&out)
			j := job{pkg: pkg{ImportPath: repository + "x", Dir: dir}, name: "x", cost: light}
			p := pool{report: r, built: &built{dir: dir, binaries: map[string]string{j.pkg.ImportPath: binary}}}
			p.run(t.Context(), []job{j})
			p.again(t.Context())
			r.summary()
			if r.failed() != failed {
				t.Errorf("failed: %t, want %t; report: %s", r.failed(), failed, out.String())
			}
		})
	}
}

func TestNothingStartsThatWouldEndAfterTheDeadline(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "x.test")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := newReport(&out)
	all := func(name string, wall time.Duration, must bool) job {
		return job{pkg: pkg{ImportPath: repository + "x", Dir: dir}, name: name, must: must, cost: cost{wall: wall, cores: 0.1}}
	}
	p := pool{
		report: r, built: &built{dir: dir, binaries: map[string]string{repository + "x": binary}}, deadline: time.Now().Add(time.Hour),
	}
	p.run(t.Context(), []job{all("short", time.Minute, false), all("needed", 2*time.Hour, true), all("endless", 2*time.Hour, false)})
	p.again(t.Context())
	r.summary()
	for text, want := range map[string]bool{"ok    short": true, "ok    needed": true, "ok    endless": false, "due:\n  endless\n": true} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("the report has %q: %t; %s", text, !want, out.String())
		}
	}
}

func TestRunningJobsAreReportedAfterAMinuteOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newReport(&out)
		jobs := []job{{name: "slow"}, {name: "later"}}
		r.begin(jobs, 1, nil)
		r.starts(jobs[0])
		ended := make(chan result)
		go func() {
			time.Sleep(61 * time.Second) //nolint:forbidigo // the clock of synctest
			ended <- result{}
		}()
		p := pool{report: r, reported: time.Now()}
		for ok := false; !ok; {
			_, ok = p.await(ended)
		}
		if !strings.HasPrefix(out.String(), "runs  slow  [0 of 2, 1 running") || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%q", out.String())
		}
	})
}

func TestAMachineIsSaturatedWhenItsCoresHardlyRest(t *testing.T) {
	for name, c := range map[string]struct {
		before, now counters
		want        bool
	}{
		"all of the time":        {counters{busy: 100, idle: 500}, counters{busy: 1100, idle: 500}, true},
		"nine tenths of it":      {counters{busy: 100, idle: 500}, counters{busy: 1000, idle: 600}, false},
		"long ago, not lately":   {counters{busy: 9000, idle: 10}, counters{busy: 9100, idle: 910}, false},
		"nothing is known of it": {counters{}, counters{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{}
			m.note(c.before)
			m.note(c.now)
			if got := m.saturated(); got != c.want {
				t.Errorf("saturated: %t, want %t", got, c.want)
			}
		})
	}
	t.Run("only the window counts", func(t *testing.T) {
		m := &machine{}
		m.note(counters{})
		for n := range int64(window / beat) {
			m.note(counters{busy: 1000, idle: 20 * n})
		}
		if m.saturated() {
			t.Error("readings from before the window count")
		}
	})
}

func TestALongJobStartsWhenTheCoresAreFreeAndTheLastOneHasSettled(t *testing.T) {
	short, long := job{cost: cost{wall: time.Second}}, job{cost: cost{wall: time.Minute}}
	for name, c := range map[string]struct {
		job   job
		since time.Duration
		busy  int64
		want  bool
	}{
		"a short job, free cores":                {short, 0, 10, true},
		"a short job, saturated cores":           {short, time.Hour, 100, false},
		"a long job right after another one":     {long, 0, 10, false},
		"a long job a while after another one":   {long, time.Hour, 10, true},
		"a long job a while after, no free core": {long, time.Hour, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{}
			m.note(counters{})
			m.note(counters{busy: c.busy, idle: 100 - c.busy})
			p := pool{machine: m, started: time.Now().Add(-c.since)}
			if got := p.settled(c.job); got != c.want {
				t.Errorf("settled: %t, want %t", got, c.want)
			}
		})
	}
}
