package main

import (
	"fmt"
	"slices"
	"time"
)

// progress of a run: the running jobs, the jobs that are left, and the expected end.
type progress struct {
	total, ended int
	capacity     float64
	left         []job // not started
	running      map[string]startedJob
}

type startedJob struct {
	job
	at time.Time
}

func newProgress(jobs []job, capacity float64) progress {
	return progress{total: len(jobs), capacity: capacity, left: slices.Clone(jobs), running: map[string]startedJob{}}
}

func (p *progress) starts(j job) {
	if i := slices.IndexFunc(p.left, func(l job) bool { return l.name == j.name && l.slice == j.slice }); i >= 0 {
		p.left = slices.Delete(p.left, i, i+1)
	}
	p.running[j.name] = startedJob{j, time.Now()}
}

func (p *progress) ends(j job) {
	p.ended++
	delete(p.running, j.name)
}

// remaining is when all is expected to have ended: no sooner than the job that takes longest, and than the cores allow.
func (p *progress) remaining() time.Duration {
	var longest, work time.Duration
	add := func(wall time.Duration, cores float64) {
		longest, work = max(longest, wall), work+time.Duration(float64(wall)*cores)
	}
	for _, j := range p.left {
		add(j.wall, j.cores)
	}
	for _, r := range p.running {
		add(max(r.wall-time.Since(r.at), 0), r.cores)
	}
	return max(longest, time.Duration(float64(work)/max(p.capacity, 0.1)))
}

// text is appended to the line of a job that ended.
func (p *progress) text() string {
	if p.total == 0 || p.ended >= p.total {
		return ""
	}
	left := p.remaining().Round(10 * time.Second)
	return fmt.Sprintf("  [%d of %d, %d running, about %s left, until %s]", p.ended, p.total, len(p.running), left, time.Now().Add(left).Format("15:04"))
}
