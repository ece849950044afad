package robustness

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A replica's wall clock can be set wrong, alone on the machine. Go reads it without a system call, so nothing from outside can come
// between; instead the services are built with a package time of which Now adds an offset. It is read from a file that the process has
// mapped, so that it changes while the process runs. The monotonic clock, timers and time-outs are those of the machine, as when
// somebody sets the clock of a host.

// clockVariable names the file with a process's offset: eight bytes, little-endian, in seconds.
const clockVariable = "STOKER_ROBUSTNESS_CLOCK"

// readsClock is the line of package time in which Now reads the clock, and what stands there instead.
const (
	readsClock  = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n"
	readsStruck = "\tsec, nsec, mono := struckNow()\n\tif mono == 0 {\n"
)

// clockOverlay writes a file for the flag -overlay of go build, into dir, by which Now adds the offset. It is an error when the Go
// version's package time isn't as it was when this was written.
func clockOverlay(ctx context.Context, dir, source string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "time")
	list.Dir = source
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go list time: %w", err)
	}
	from := filepath.Join(strings.TrimSpace(string(out)), "time.go")
	text, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(text, []byte(readsClock)); n != 1 {
		return "", fmt.Errorf("%s reads the clock by %q %d times, not once: adapt this to the version of Go", from, readsClock, n)
	}
	text = bytes.Replace(text, []byte(readsClock), []byte(readsStruck), 1)
	to := filepath.Join(dir, "time.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		from: to,
		filepath.Join(filepath.Dir(from), "struck.go"): filepath.Join(source, "test", "robustness", "testdata", "struck.go"),
	}})
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, overlay, 0o600)
}

// SetClock has a replica's wall clock be wrong by so much, in whole seconds; 0 puts it right.
func (r *Replica) SetClock(wrong time.Duration) error {
	var data [8]byte
	binary.LittleEndian.PutUint64(data[:], uint64(int64(wrong/time.Second)))
	f, err := os.OpenFile(r.clock(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(data[:], 0)
	return err
}

func (r *Replica) clock() string { return filepath.Join(r.site.dir, r.String()+".clock") }

// jumpClock sets one replica's clock ahead or back, by seconds to a day.
func jumpClock(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	r := s.Replicas[pick.IntN(len(s.Replicas))]
	most := []time.Duration{10 * time.Second, 10 * time.Minute, 24 * time.Hour}[pick.IntN(3)]
	wrong := time.Second + time.Duration(pick.Int64N(int64(most))).Truncate(time.Second)
	if pick.IntN(2) == 0 {
		wrong = -wrong
	}
	return fmt.Sprintf("%s by %s", r, wrong), func(context.Context) error { return r.SetClock(0) }, r.SetClock(wrong)
}
