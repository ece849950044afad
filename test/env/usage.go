package env

import (
	"fmt"
	"os"
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
func (p *Process) Usage() (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
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
