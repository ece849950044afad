package data

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// asked is the variable that has this program do a task in place of measuring.
const asked = "STOKER_BENCH_DATA_TASK"

// task is an import or an export, for a process of its own.
type task struct {
	Kind        string
	Config      driver.Config
	Account     driver.Account
	Export      bool
	Keys, Bytes int
	// Backup has what is exported be a backup, and what is imported come from one; nil for neither.
	Backup *kept
	// Move has the data move; nil for none.
	Move *moving
}

// result is what a task took.
type result struct {
	// Open and All are seconds: until the data were open, and for the import or the export.
	Open, All float64
	// PeakMB is the most memory that the process had at once (VmHWM of /proc/self/status).
	PeakMB float64
	// Copied and Held are seconds of each move: until all was copied, and for how long writes were held.
	Copied, Held []float64
	// ID of a backup.
	ID    string
	Error string

	// cpu and serverCPU are seconds: of the process, also those for opening, and of the server meanwhile.
	cpu, serverCPU float64
}

// run has another process do the task.
func (t task) run(b *testing.B) (r result) {
	b.Helper()
	input, err := json.Marshal(t)
	check(b, err)
	program, err := os.Executable()
	check(b, err)
	cmd := exec.CommandContext(b.Context(), program)
	cmd.Env = append(os.Environ(), asked+"=1")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	before := family()
	out, err := cmd.Output()
	check(b, err)
	check(b, json.Unmarshal(out, &r))
	if r.Error != "" {
		b.Fatal(r.Error)
	}
	r.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	r.serverCPU = family() - before - r.cpu
	return r
}

// answer reads a task, does it and prints its result.
func answer(in io.Reader, out io.Writer) int {
	var t task
	err := json.NewDecoder(in).Decode(&t)
	var r result
	if err == nil {
		r, err = t.do(context.Background())
	}
	if err != nil {
		r.Error = err.Error()
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return 1
	}
	return 0
}

func (t task) do(ctx context.Context) (r result, err error) {
	if t.Move != nil {
		err := t.move(ctx, &r)
		r.PeakMB = peak()
		return r, err
	}
	began := time.Now()
	data, closeAll, err := t.open(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	r.Open = time.Since(began).Seconds()
	at := int64(0)
	if t.Export {
		if at, err = data.Revision(ctx); err != nil {
			return r, err
		}
	}
	began = time.Now()
	switch {
	case t.Backup != nil:
		r.ID, err = t.back(ctx, data, at)
	case t.Export:
		err = t.export(data.Export(ctx, at))
	default:
		err = data.Import(ctx, t.all())
	}
	r.All = time.Since(began).Seconds()
	r.PeakMB = peak()
	return r, err
}

func (t task) open(ctx context.Context) (data driver.Data, closeAll func() error, err error) {
	d, err := openKind(t.Kind, t.Config)
	if err != nil {
		return nil, nil, err
	}
	if data, err = dataIn(ctx, d, t.Account); err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return data, func() error { return errors.Join(data.Close(), d.Close()) }, nil
}

// all are the keys that are imported: those of 100 namespaces, in no order.
func (t task) all() iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		noise := rand.New(rand.NewPCG(1, 2))
		for _, i := range noise.Perm(t.Keys) {
			value := make([]byte, t.Bytes+8)
			for at := 0; at < t.Bytes; at += 8 {
				binary.LittleEndian.PutUint64(value[at:], noise.Uint64())
			}
			if !yield(driver.Change{Key: fmt.Sprintf("configmaps/namespace-%02d/object-%06d", i%100, i), Value: value[:t.Bytes]}, nil) {
				return
			}
		}
	}
}

// export counts what is exported.
func (t task) export(all iter.Seq2[driver.Change, error]) error {
	keys, size := 0, 0
	for c, err := range all {
		if err != nil {
			return err
		}
		keys, size = keys+1, size+len(c.Value)
	}
	if keys != t.Keys || size != t.Keys*t.Bytes {
		return fmt.Errorf("%d keys with %d bytes are exported, not %d with %d", keys, size, t.Keys, t.Keys*t.Bytes)
	}
	return nil
}

// peak is the most memory that this process had.
func peak() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kb / 1024
		}
	}
	return 0
}

// family is how many CPU seconds this process, which has the NATS server in it, and all that descend from it have used, also those that
// have ended.
func family() (seconds float64) {
	const clockTick = 100 // proc(5): Linux tells user space so many a second on every architecture Go runs on
	parents, used := map[string]string{}, map[string]float64{}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range processes {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		pid := filepath.Base(filepath.Dir(path))
		parents[pid] = fields[1]
		for _, f := range fields[11:15] { // its own, user and system, and those of its children that have ended
			n, _ := strconv.ParseFloat(f, 64)
			used[pid] += n / clockTick
		}
	}
	me := strconv.Itoa(os.Getpid())
	for pid := range used {
		for p := pid; p != ""; p = parents[p] {
			if p == me {
				seconds += used[pid]
				break
			}
		}
	}
	return seconds
}
