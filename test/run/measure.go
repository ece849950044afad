package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// measureCommand is the first argument of this program where it runs a test binary and measures it.
const measureCommand = "measure"

// usage of a test binary and of all processes that it started.
type usage struct {
	Code      int // the exit code of the test binary
	Wall, CPU time.Duration
	Memory    int64    // of the largest process, bytes
	Left      []string // the processes that outlived the tests, which were ended
}

// measure runs a program, adopts the processes that it leaves behind, and writes to a file what all of them used. It returns the program's
// exit code.
func measure(file string, args []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "run: adopt processes:", err)
		return 2
	}
	began := time.Now()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		return 2
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	go func() { // until this process ends
		for s := range ended {
			_ = cmd.Process.Signal(s)
		}
	}()
	code := 2
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			break
		}
		if pid == cmd.Process.Pid {
			if code = status.ExitStatus(); status.Signaled() {
				fmt.Fprintln(os.Stderr, "signal:", status.Signal())
				code = 2
			}
			break
		}
	}
	u := usage{Code: code, Wall: time.Since(began), Left: endChildren()}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used) == nil {
		u.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
		u.Memory = used.Maxrss << 10
	}
	data, err := json.Marshal(u)
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run: measurement:", err)
	}
	return code
}

// grace is how long processes that a test left behind have to end by themselves. A service that was told to end may be doing so.
const grace = 3 * time.Second

// endChildren waits for the processes that are left, kills them when they don't end, and says which.
func endChildren() (left []string) {
	for range 3 { // the children of a killed process are next
		if gone(time.Now().Add(grace)) {
			return left
		}
		for _, pid := range children() {
			left = append(left, commandLine(pid))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	gone(time.Now().Add(grace))
	return left
}

// gone waits until this process has no child any longer, and reports whether that was so before the deadline.
func gone(deadline time.Time) bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return true
		case pid > 0:
		case time.Now().After(deadline):
			return false
		default:
			time.Sleep(20 * time.Millisecond) //nolint:forbidigo // between two looks: the kernel has no event for all children
		}
	}
}

// children of this process.
func children() (pids []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// commandLine of a process, its first 120 characters.
func commandLine(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	text := strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
	return text[:min(len(text), 120)]
}
