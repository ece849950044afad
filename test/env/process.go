package env

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// Process is a service as a process of its own. It may end only when a test ends it: when it ends by itself, or writes to its
// log that it panicked or raced, whichever of Kill, Stop, Restart, Remove and the end of the package comes next says so.
type Process struct {
	Name, Replica string
	env           *Env
	tap           *Tap     // what it sends goes through; nil for none
	vars          []string // of its environment, in addition to the variables of every service
	cmd           *exec.Cmd
	log           *os.File
	http          string
	exited        chan struct{} // closed when the process has ended
	read          int64         // how much of the log was searched
	before        int64         // how long the log was when the process was started

	mu       sync.Mutex
	asked    bool    // a test has ended it
	faults   []error // not reported yet
	parsed   []line  // of the log
	parsedTo int64   // length of the log up to the end of parsed
}

// start starts the process with the identities of its service.
func (p *Process) start() error {
	cfg := p.env.Stack.Service(p.Name, p.Replica)
	if s := p.env.servers; s != nil {
		cfg.NATS, cfg.NATSSeed, cfg.StreamReplicas = s.URL, s.Seed(p.Name), s.Replicas
	}
	if p.tap != nil {
		p.tap.Clear()
		cfg.NATS, cfg.Kubeconfig = p.tap.nats, p.tap.kubeconfig
	}
	if p.http == "" {
		var err error
		if p.http, _, err = port.Reserve(p.env.Local.Block().Management().String()); err != nil {
			return err
		}
	}
	cmd := exec.Command(filepath.Join(p.env.bins, "stoker-"+p.Name))
	cmd.Env = append(os.Environ(),
		"STOKER_NATS="+cfg.NATS, "STOKER_NATS_SEED="+cfg.NATSSeed, "STOKER_KUBECONFIG="+cfg.Kubeconfig,
		"STOKER_REPLICA="+p.Replica, "STOKER_HTTP="+p.http, "STOKER_DATASTORE="+stack.DefaultDataStore,
		"STOKER_ACTIVATOR_ADDRESS="+p.env.Local.Block().Management().String(),
		"STOKER_STREAM_REPLICAS="+strconv.Itoa(cfg.StreamReplicas),
		"STOKER_LOG_LEVEL="+logLevel(), "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, p.vars...)
	return p.run(cmd)
}

// logLevel of the services. Tests search all that services may ever log for secrets; benchmarks set STOKER_TEST_LOG_LEVEL to what runs in
// production.
func logLevel() string { return cmp.Or(os.Getenv("STOKER_TEST_LOG_LEVEL"), "debug") }

// run starts a program as this process.
func (p *Process) run(cmd *exec.Cmd) (err error) {
	if p.log, err = os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	defer p.log.Close()
	if p.before, err = p.log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.exited, p.asked = cmd, exited, false
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		p.mu.Lock()
		if !p.asked {
			p.faults = append(p.faults, fmt.Errorf("%s %s ended by itself (%s); log:\n%s", p.Name, p.Replica, cmd.ProcessState, p.tail()))
		}
		p.mu.Unlock()
		close(exited)
	}()
	return nil
}

// Log is the path of the process's log.
func (p *Process) Log() string { return filepath.Join(p.env.dir, p.Name+"-"+p.Replica+".log") }

// Address is the host and port of the process's HTTP.
func (p *Process) Address() string { return p.http }

// Readyz asks the process what it waits for.
func (p *Process) Readyz(ctx context.Context) (string, error) { return p.get(ctx, "/readyz") }

// Metrics asks the process for its metrics.
func (p *Process) Metrics(ctx context.Context) (string, error) { return p.get(ctx, "/metrics") }

// get returns a page of the process. A process that was just started may not listen yet: get tries again while it runs.
func (p *Process) get(ctx context.Context, path string) (page string, err error) {
	_ = poll.Retry(ctx, func() error {
		if page, err = p.page(ctx, path); errors.Is(err, syscall.ECONNREFUSED) && p.runs() {
			return err
		}
		return nil
	})
	return page, err
}

func (p *Process) page(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.http+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal (SIGSTOP, SIGCONT). After SIGSTOP it returns when all threads of the process have stopped: for some milliseconds
// they go on.
func (p *Process) Signal(s syscall.Signal) {
	if p.cmd.Process.Signal(s) == nil && s == syscall.SIGSTOP {
		awaitStop(p.PID())
	}
}

// awaitStop returns when a child has stopped or ended; how it ended stays for [os/exec.Cmd.Wait] to see.
func awaitStop(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// end notes that a test ends the process, and sends the signal; false when it has ended already.
func (p *Process) end(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited:
		return false
	default:
	}
	if p.cmd.Process.Signal(s) != nil {
		return false // it has just ended, and nobody asked it to
	}
	p.asked = true
	return true
}

// Kill ends the process as the kernel would (SIGKILL) and waits.
func (p *Process) Kill() {
	if p.end(syscall.SIGKILL) {
		<-p.exited
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() != syscall.SIGKILL {
			p.fault(fmt.Errorf("%s %s ended by itself (%s) as it was killed; log:\n%s", p.Name, p.Replica, p.cmd.ProcessState, p.tail()))
		}
	}
	<-p.exited
}

// Restart starts the process again after Kill or Stop.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	if err := p.told(); err != nil {
		t.Error(err)
	}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
}

// endTime is how long a process may take to end, on a busy machine.
const endTime = time.Minute

// Stop ends the process gracefully. The error says whatever was wrong with it since it was last asked: that it had ended by
// itself, an exit code that isn't zero, a panic or a data race in its log.
func (p *Process) Stop() error {
	if p.end(syscall.SIGTERM) {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // one that was stopped hears nothing
		select {
		case <-p.exited:
			if !p.cmd.ProcessState.Success() && !p.endedBeforeItBegan() {
				p.fault(fmt.Errorf("%s %s: %s at SIGTERM; log:\n%s", p.Name, p.Replica, p.cmd.ProcessState, p.tail()))
			}
		case <-time.After(endTime):
			_ = p.cmd.Process.Kill()
			<-p.exited
			p.fault(fmt.Errorf("%s %s did not end within %s of SIGTERM; log:\n%s", p.Name, p.Replica, endTime, p.tail()))
		}
	}
	<-p.exited
	return p.told()
}

// endedBeforeItBegan reports whether a process was terminated before it asked for signals: it had written nothing yet.
func (p *Process) endedBeforeItBegan() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGTERM {
		return false
	}
	log, err := os.Stat(p.Log())
	return err == nil && log.Size() == p.before
}

// Remove stops the process and forgets it.
func (p *Process) Remove(t testing.TB) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	delete(p.env.procs, p.Name+"/"+p.Replica)
}

// line is what the tests read of a line of a service's log.
type line struct {
	Time   time.Time
	Msg    string
	Tenant string
	Held   []int
}

// lines returns the lines that the service's logger wrote. It parses only the new part of the log.
func (p *Process) lines(t testing.TB) []line {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := os.Open(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, p.parsedTo, math.MaxInt64-p.parsedTo))
	if err != nil {
		t.Fatal(err)
	}
	for text := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		var l line
		if json.Unmarshal(text, &l) == nil {
			p.parsed = append(p.parsed, l)
		}
		p.parsedTo += int64(len(text))
	}
	return slices.Clip(p.parsed)
}

// Held are the partitions that the process works on, by its own last word.
func (p *Process) Held(t testing.TB) []int {
	t.Helper()
	for _, l := range slices.Backward(p.lines(t)) {
		if l.Msg == "partitions" {
			return l.Held
		}
	}
	return nil
}

// Holds reports whether the process works on a tenant.
func (p *Process) Holds(t testing.TB, key events.Key) bool {
	t.Helper()
	return slices.Contains(p.Held(t), key.Partition())
}

// Did is when the process first did a step for a tenant after a time; zero when it did none.
func (p *Process) Did(t testing.TB, key events.Key, after time.Time) time.Time {
	t.Helper()
	for _, l := range p.lines(t) {
		if l.Msg == "step done" && l.Tenant == key.String() && l.Time.After(after) {
			return l.Time
		}
	}
	return time.Time{}
}

// runs reports whether the process has not ended.
func (p *Process) runs() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *Process) fault(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, err)
}

// told returns what is wrong with the process, each fault once.
func (p *Process) told() error {
	p.searchLog()
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults
	p.faults = nil
	return errors.Join(faults...)
}

// broken is what a program writes that has a defect, though it may go on: Go's own words, and those of the loop and of
// net/http for a panic that they caught.
var broken = regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: ).*|^.*( panicked: |http: panic serving ).*`)

// searchLog looks for signs of a defect in what the log has more than last time.
func (p *Process) searchLog() {
	data, err := os.ReadFile(p.Log())
	if err != nil {
		p.fault(err)
		return
	}
	fresh := data[p.read:]
	p.read = int64(len(data))
	if at := broken.FindIndex(fresh); at != nil {
		rest := fresh[at[0]:]
		p.fault(fmt.Errorf("the log of %s %s has:\n%s", p.Name, p.Replica, rest[:min(len(rest), maxTail)]))
	}
}

// maxTail bounds how much of a log is shown.
const maxTail = 4000

func (p *Process) tail() string {
	data, _ := os.ReadFile(p.Log())
	return string(bytes.TrimSpace(data[max(0, len(data)-maxTail):]))
}
