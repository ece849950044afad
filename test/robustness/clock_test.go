package robustness

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/test/env"
)

// tellsTime says the time, and how long it has run, whenever it is asked.
const tellsTime = `package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	began, asked := time.Now(), make([]byte, 1)
	for {
		if _, err := os.Stdin.Read(asked); err != nil {
			return
		}
		now := time.Now()
		fmt.Println(now.Unix(), int64(now.Sub(began).Seconds()))
	}
}
`

func TestAClockJumpsForOneProcessWhileItRuns(t *testing.T) {
	dir := t.TempDir()
	overlay, err := clockOverlay(t.Context(), dir, env.Root())
	if err != nil {
		t.Fatal(err)
	}
	program, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(program, []byte(tellsTime), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", bin, program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := &Replica{Service: "certs", Name: "a", site: &Site{dir: dir}}
	if err := r.SetClock(0); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = append(os.Environ(), clockVariable+"="+r.clock())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	answers := bufio.NewScanner(out)
	for _, wrong := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour, -time.Second, 0} {
		if err := r.SetClock(wrong); err != nil {
			t.Fatal(err)
		}
		asked := time.Now().Truncate(time.Second)
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() {
			t.Fatal("no answer")
		}
		var at, ran int64
		if _, err := fmt.Sscan(answers.Text(), &at, &ran); err != nil {
			t.Fatal(err)
		}
		right := time.Unix(at, 0).Add(-wrong)
		if right.Before(asked) || right.After(time.Now()) {
			t.Errorf("wrong by %s, the clock says %s, which is no time between %s and now", wrong, time.Unix(at, 0), asked)
		}
		if most := time.Since(began); ran < 0 || time.Duration(ran)*time.Second > most {
			t.Errorf("wrong by %s, it has run for %d s of %s: its monotonic clock jumps, too", wrong, ran, most)
		}
	}
}
