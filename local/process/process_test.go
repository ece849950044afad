package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
)

// TestMain lets this binary play the parts of the tests: a parent, or a child that won't end when asked.
func TestMain(m *testing.M) {
	switch os.Getenv("PART") {
	case "parent":
		p, err := Start(self("stubborn", os.Getenv("LOG")))
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(p.PID()) + "\n")
		time.Sleep(time.Hour) //nolint:forbidigo // until killed; an empty select is a deadlock to the runtime
	case "stubborn":
		ignore()
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Hour) //nolint:forbidigo // until killed; an empty select is a deadlock to the runtime
	case "busy":
		for range 4 {
			go func() {
				for {
					os.Getpid()
				}
			}()
		}
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Hour) //nolint:forbidigo // until killed; an empty select is a deadlock to the runtime
	case "fails":
		os.Stdout.WriteString("about to fail\n")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func self(part, log string) Spec {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Spec{Path: path, Args: []string{"test"}, Env: []string{"PART=" + part, "LOG=" + log}, Log: log}
}

func gone(t *testing.T, pid int) {
	t.Helper()
	poll.True(t, "the end of process "+strconv.Itoa(pid), func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ")
	})
}

// says waits until a log holds a text.
func says(t *testing.T, path, text string) {
	t.Helper()
	poll.True(t, path+" says "+text, func() bool {
		data, _ := os.ReadFile(path)
		return strings.Contains(string(data), text)
	})
}

func TestProcess(t *testing.T) {
	t.Run("how it ended is known, and what it printed", func(t *testing.T) {
		log := filepath.Join(t.TempDir(), "log")
		p, err := Start(self("fails", log))
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if exit := p.Exit(); exit.Code != 3 || exit.Signal != 0 || p.Running() {
			t.Errorf("got %+v, running %v", exit, p.Running())
		}
		says(t, log, "about to fail")
		if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("log: %v, %v", info, err)
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("a signal after its end: %v", err)
		}
	})
	t.Run("one that doesn't end when asked is killed after its grace, paused or not", func(t *testing.T) {
		log := filepath.Join(t.TempDir(), "log")
		p, err := Start(self("stubborn", log))
		if err != nil {
			t.Fatal(err)
		}
		says(t, log, "ready")
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		p.Stop(t.Context(), 50*time.Millisecond)
		if exit := p.Exit(); exit.Signal != syscall.SIGKILL || exit.Code != 137 {
			t.Errorf("got %+v", exit)
		}
	})
	t.Run("one that is stopped does nothing more, with none of its threads", func(t *testing.T) {
		log := filepath.Join(t.TempDir(), "log")
		p, err := Start(self("busy", log))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop(t.Context(), 0)
		says(t, log, "ready")
		for range 20 {
			if err := p.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
			if err != nil || len(threads) < 2 {
				t.Fatal(threads, err)
			}
			for _, path := range threads {
				if stat, err := os.ReadFile(path); err != nil || !strings.Contains(string(stat), ") T ") {
					t.Fatalf("%s: %q, %v", path, stat, err)
				}
			}
			if err := p.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("an end of patience cuts the grace short", func(t *testing.T) {
		log := filepath.Join(t.TempDir(), "log")
		p, err := Start(self("stubborn", log))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.Stop(ctx, time.Hour)
		if p.Running() {
			t.Error("it runs")
		}
	})
	t.Run("it doesn't outlive a parent that is killed", func(t *testing.T) {
		path, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		parent := exec.Command(path)
		parent.Env = []string{"PART=parent", "LOG=" + filepath.Join(t.TempDir(), "log")}
		out, err := parent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := parent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = parent.Wait()
		gone(t, pid)
	})
	t.Run("what can't be started is an error", func(t *testing.T) {
		if _, err := Start(Spec{Path: "/nowhere/at/all", Args: []string{"x"}, Log: filepath.Join(t.TempDir(), "log")}); err == nil {
			t.Error("no error")
		}
	})
}

func TestRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for _, limit := range []int64{10, 9} {
		if err := Rotate(path, limit); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := writer.WriteString("next"); err != nil {
		t.Fatal(err)
	}
	old, _ := os.ReadFile(path + ".1")
	now, _ := os.ReadFile(path)
	if string(old) != "0123456789" || string(now) != "next" {
		t.Errorf("old is %q, new is %q", old, now)
	}
}
