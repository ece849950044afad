package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"
)

const (
	beat = 100 * time.Millisecond
	// stalledAfter is how late a beat is on a stalled machine, on which no program runs as it should.
	stalledAfter = 2 * time.Second
	// window is the time over which saturated looks.
	window = 5 * time.Second
	// saturation is the share of the time for which the cores of a saturated machine work.
	saturation = 0.9
)

// machine watches whether the machine runs this process in time, and how busy its cores are. If the machine stalls for seconds, leases
// expire.
type machine struct {
	mu     sync.Mutex
	stalls []stall
	last   []counters // a reading for each beat of the window
	stop   chan struct{}
	done   chan struct{}
	began  time.Time
	before counters
}

// stall is a time during which this process did not run.
type stall struct{ from, to time.Time }

// watchMachine begins to watch. The caller calls end.
func watchMachine() *machine {
	m := &machine{stop: make(chan struct{}), done: make(chan struct{}), began: time.Now(), before: readCounters()}
	go m.watch()
	return m
}

func (m *machine) watch() {
	defer close(m.done)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-m.stop:
			return
		case <-ticker.C:
			now := time.Now()
			if now.Sub(last) > stalledAfter+beat {
				m.mu.Lock()
				m.stalls = append(m.stalls, stall{last, now})
				m.mu.Unlock()
			}
			last = now
			m.note(readCounters())
		}
	}
}

// note notes a reading of the counters.
func (m *machine) note(c counters) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last = append(m.last, c); len(m.last) > int(window/beat) {
		m.last = m.last[1:]
	}
}

// saturated reports whether the cores worked for nearly all of the window, so that another job would only make all of them slower.
func (m *machine) saturated() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.last) == 0 {
		return false
	}
	first, last := m.last[0], m.last[len(m.last)-1]
	busy, idle := last.busy-first.busy, last.idle-first.idle
	return float64(busy) > saturation*float64(busy+idle)
}

func (m *machine) end() {
	close(m.stop)
	<-m.done
}

// stalled is how long the machine was stalled between two times.
func (m *machine) stalled(from, to time.Time) (d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stalls {
		if s.from.Before(to) && s.to.After(from) {
			d += s.to.Sub(s.from)
		}
	}
	return d
}

// counters of the kernel since the machine started: how long its cores worked and did not, in hundredths of a second, and for how long some
// process waited for a core, for the disk, or for memory (https://docs.kernel.org/accounting/psi.html).
type counters struct {
	busy, idle        int64
	cpu, io, memory   time.Duration
	pressureIsCounted bool
}

var (
	cpuLine  = regexp.MustCompile(`(?m)^cpu +(.*)$`)
	someLine = regexp.MustCompile(`(?m)^some .*total=(\d+)$`)
)

func readCounters() (c counters) {
	data, _ := os.ReadFile("/proc/stat")
	if found := cpuLine.FindSubmatch(data); found != nil {
		var user, nice, system, idle, iowait, irq, softirq, steal int64
		_, _ = fmt.Sscan(string(found[1]), &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
		c.busy, c.idle = user+nice+system+irq+softirq+steal, idle+iowait
	}
	for name, to := range map[string]*time.Duration{"cpu": &c.cpu, "io": &c.io, "memory": &c.memory} {
		data, _ := os.ReadFile("/proc/pressure/" + name)
		if found := someLine.FindSubmatch(data); found != nil {
			us, _ := strconv.ParseInt(string(found[1]), 10, 64)
			*to, c.pressureIsCounted = time.Duration(us)*time.Microsecond, true
		}
	}
	return c
}

// said describes the machine since it is watched.
func (m *machine) said() string {
	now, took := readCounters(), time.Since(m.began)
	text := "the machine never stalled"
	if d := m.stalled(m.began, time.Now()); d > 0 {
		text = fmt.Sprintf("the machine was stalled for %s in all", d.Round(time.Second/10))
	}
	if busy, idle := now.busy-m.before.busy, now.idle-m.before.idle; busy+idle > 0 {
		text += fmt.Sprintf("; its cores were busy for %d %% of the time", 100*busy/(busy+idle))
	}
	if now.pressureIsCounted && took > 0 {
		share := func(d time.Duration) int64 { return int64(100 * d / took) }
		text += fmt.Sprintf("; some process waited for a core %d %%, for the disk %d %%, for memory %d %% of it",
			share(now.cpu-m.before.cpu), share(now.io-m.before.io), share(now.memory-m.before.memory))
	}
	return text
}
