package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain is the program that measures, where the test starts it as such.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == measureCommand {
		os.Exit(measure(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

func TestMeasureCountsProcessesThatAreLeftAndEndsThem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "usage")
	// The inner shell ends at once, and what it started in the background has no parent then.
	script := `sh -c 'while :; do :; done & echo $!'; i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done; exit 3`
	cmd := exec.Command(os.Args[0], measureCommand, file, "sh", "-c", script)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != 3 {
		t.Fatalf("exit code %d, %v, want 3", cmd.ProcessState.ExitCode(), err)
	}
	var u usage
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &u); err != nil {
		t.Fatal(err)
	}
	if u.CPU < 100*time.Millisecond || u.Wall <= 0 || u.Memory == 0 {
		t.Errorf("the processes used %+v", u)
	}
	if len(u.Left) != 1 || !strings.Contains(u.Left[0], "while :") {
		t.Errorf("left are %q", u.Left)
	}
	if pid := strings.TrimSpace(out.String()); exists("/proc/" + pid) {
		t.Errorf("process %s still runs", pid)
	}
}
