package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// share of the machine's cores that jobs may be expected to keep busy. It is above 1 because jobs don't compute at an even rate: with 1, two
	// cores were busy for 89 % of a run.
	share = 1.1
	// atOnce bounds how many jobs run side by side, because each may hold a gigabyte or more.
	atOnce = 8
)

// pool runs jobs side by side.
type pool struct {
	report   *report
	built    *built
	env      []string
	options  options
	deadline time.Time // nothing is started after it; zero for none
	machine  *machine
	failed   []job     // while the machine was stalled
	reported time.Time // the last line about running jobs
	started  time.Time // the last job that takes long
}

// run runs the jobs, and returns when all have ended. It starts the first job for which enough cores are expected to be free, and none
// while the machine is saturated: on slow cores a job takes more of them than expected, and tests with too little of a core time out.
func (p *pool) run(ctx context.Context, jobs []job) {
	p.machine = watchMachine()
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return p.built.binaries[j.pkg.ImportPath] == "" })
	capacity, most := share*float64(runtime.NumCPU()), atOnce
	if p.options.alone {
		most = 1
	}
	p.report.begin(jobs, capacity, p.machine)
	ended := make(chan result)
	p.reported = time.Now()
	busy, running := 0.0, 0
	for len(jobs) > 0 || running > 0 {
		for running < most {
			i := slices.IndexFunc(jobs, func(j job) bool { return running == 0 || busy+j.cores <= capacity && p.settled(j) })
			if i < 0 || ctx.Err() != nil || p.late(jobs[i]) {
				break
			}
			j := jobs[i]
			if !quick(j) {
				p.started = time.Now()
			}
			jobs = slices.Delete(jobs, i, i+1)
			busy, running = busy+j.cores, running+1
			p.report.starts(j)
			go func() {
				ended <- result{j, p.one(ctx, j)}
			}()
		}
		if running == 0 {
			break
		}
		if r, ok := p.await(ended); ok {
			if busy, running = busy-r.cores, running-1; r.again {
				p.failed = append(p.failed, r.job)
			}
		}
	}
	p.report.due(jobs)
}

// settled reports whether a job may start in addition to the running ones: the cores are not saturated, and the latest long job has run for
// long enough to show what it takes.
func (p *pool) settled(j job) bool {
	return !p.machine.saturated() && (quick(j) || time.Since(p.started) >= 2*window)
}

// quick reports whether a job ends before it matters how much of the cores it takes.
func quick(j job) bool { return j.wall <= 2*window }

// await returns the next result if there is one within a second. After each minute without one, it reports the running jobs.
func (p *pool) await(ended <-chan result) (r result, ok bool) {
	second := time.NewTimer(time.Second)
	defer second.Stop()
	select {
	case r, ok = <-ended:
		p.reported = time.Now()
	case <-second.C:
		if time.Since(p.reported) >= time.Minute {
			p.report.waits()
			p.reported = time.Now()
		}
	}
	return r, ok
}

// late reports whether a job may no longer start, because it would end after the deadline.
func (p *pool) late(j job) bool {
	return !j.must && !p.deadline.IsZero() && time.Now().Add(j.wall).After(p.deadline)
}

// result of a job.
type result struct {
	job
	again bool // the job failed while the machine was stalled
}

// one runs a job, reports it, and says whether to run it again.
func (p *pool) one(ctx context.Context, j job) (again bool) {
	began := time.Now()
	u, err := p.execute(ctx, j)
	failed := p.report.ends(j, u, err)
	return failed && p.machine.stalled(began, time.Now()) > 0 && ctx.Err() == nil
}

// again runs the jobs that failed while the machine was stalled once more, one at a time. What fails on a machine that runs as it should has
// failed.
func (p *pool) again(ctx context.Context) {
	defer p.machine.end()
	for _, j := range p.failed {
		first := p.report.takeFailures(j)
		p.report.line("again: %s, which failed while the machine was stalled", j.name)
		u, err := p.execute(ctx, j)
		p.report.repeated(j, first, !p.report.ends(j, u, err))
	}
}

// execute runs a test binary, and gives what it says to the report.
func (p *pool) execute(ctx context.Context, j job) (usage, error) {
	self, err := os.Executable()
	if err != nil {
		return usage{}, err
	}
	file, err := os.CreateTemp(p.built.dir, "usage-")
	if err != nil {
		return usage{}, err
	}
	_ = file.Close()
	tool, err := test2json()
	if err != nil {
		return usage{}, err
	}
	args := []string{"-t", "-p", j.name, self, measureCommand, file.Name(), p.built.binaries[j.pkg.ImportPath],
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout=40m"}
	if !j.long {
		args = append(args, "-test.short")
	}
	if j.pattern != "" {
		args = append(args, "-test.run="+j.pattern)
	}
	cmd := exec.CommandContext(ctx, tool, append(args, p.options.flags...)...)
	cmd.Dir = j.pkg.Dir
	cmd.Env = append(append(os.Environ(), p.env...), "PWD="+j.pkg.Dir, builtVariable+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	inGroup(cmd) // [measure] ends the test's processes in order
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return usage{}, err
	}
	if err := cmd.Start(); err != nil {
		return usage{}, err
	}
	read := p.report.read(out)
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || read != nil {
		return usage{}, errors.Join(err, read)
	}
	var u usage
	data, err := os.ReadFile(file.Name())
	if err != nil {
		return u, err
	}
	if err := json.Unmarshal(data, &u); err != nil {
		return u, fmt.Errorf("the process that measures %s was killed: %w", j.name, err)
	}
	if exit != nil && u.Code == 0 {
		return u, fmt.Errorf("test2json: %w", exit)
	}
	return u, nil
}

// test2json is Go's program that turns what a test binary writes into JSON.
var test2json = sync.OnceValues(func() (string, error) {
	out, err := command(context.Background(), "go", "tool", "-n", "test2json")
	if err != nil {
		return "", err
	}
	path := filepath.Clean(strings.TrimSpace(string(out)))
	if !exists(path) { // since Go 1.25 a tool is built when it is first used
		_, _ = command(context.Background(), "go", "tool", "test2json", "-h")
	}
	return path, nil
})
