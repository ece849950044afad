package env

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage is what a process has used.
type Usage struct {
	// CPU seconds, user and system, since its start.
	CPU float64
	// MB of memory that is its own (RssAnon of /proc/<pid>/status).
	MB float64
}

// clockTick is the unit of /proc/<pid>/stat; Linux has told user space 100 per second on every architecture Go runs on.
const clockTick = 100

// Usage reads what the process has used so far.
func (p *Process) Usage() (Usage, error) { return UsageOf(p.PID()) }

// Self is the name of this process, which has the NATS server in it, among Usages.
const Self = "NATS and the test"

// Usages reads what this process and its children have used so far, by their programs' names.
func (e *Env) Usages() map[string]Usage {
	all := map[string]Usage{}
	if u, err := UsageOf(os.Getpid()); err == nil {
		all[Self] = u
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range processes {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		name := string(stat[bytes.IndexByte(stat, '(')+1 : bytes.LastIndexByte(stat, ')')])
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && fields[1] == strconv.Itoa(os.Getpid()) {
			if u, err := UsageOf(pid); err == nil {
				all[name] = Usage{CPU: all[name].CPU + u.CPU, MB: all[name].MB + u.MB}
			}
		}
	}
	return all
}

// Machine reads how many CPU seconds all processes of the machine have used, and how many it had left, over all its cores.
// What is measured while others work here is a lower bound.
func Machine() (busy, idle float64) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, f := range strings.Fields(line)[1:9] { // those behind are in these already (proc(5))
		n, _ := strconv.ParseFloat(f, 64)
		if i == 3 || i == 4 { // idle, and waiting for disks
			idle += n / clockTick
		} else {
			busy += n / clockTick
		}
	}
	return busy, idle
}

// UsageOf reads what any process has used so far.
func UsageOf(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The name, in parentheses, may hold spaces; utime and stime are the 14th and 15th field (proc(5)).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var u Usage
	for _, f := range fields[11:13] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return u, err
		}
		u.CPU += n / clockTick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			if err != nil {
				return u, err
			}
			u.MB = kb / 1024
		}
	}
	return u, nil
}
