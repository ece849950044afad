package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// prefix begins the names of directories; the process of the test follows.
const prefix = "stoker-test-"

// memory is a place for directories in memory, where servers are several times faster, unless $TMPDIR names another or
// there is too little of it. What tests that were killed left there goes first.
var memory = sync.OnceValue(func() string {
	const place, enough = "/dev/shm", 4 << 30
	if os.Getenv("TMPDIR") != "" {
		return ""
	}
	left, _ := filepath.Glob(filepath.Join(place, prefix+"*"))
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		if _, err := os.Stat(filepath.Join("/proc", pid)); errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(dir)
		}
	}
	var room syscall.Statfs_t
	if err := syscall.Statfs(place, &room); err != nil || room.Bavail*uint64(room.Bsize) < enough {
		return ""
	}
	return place
})

// Dir is a directory that is the servers' own, and removed at the end of the test. Database servers refuse to run as
// root; for root they run as nobody.
type Dir struct {
	Path string
	// User the programs run as.
	User       string
	credential *syscall.Credential
}

// OwnDir makes a Dir of whoever runs the test.
func OwnDir(t testing.TB, name string) *Dir {
	t.Helper()
	path, err := os.MkdirTemp(memory(), fmt.Sprintf("%s%d-%s-", prefix, os.Getpid(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	d := &Dir{Path: path}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	d.User = me.Username
	return d
}

// NewDir makes a Dir.
func NewDir(t testing.TB, name string) *Dir {
	t.Helper()
	d := OwnDir(t, name)
	if os.Getuid() == 0 {
		other, err := user.Lookup("nobody")
		if err != nil {
			t.Fatalf("the server must not run as root: %v", err)
		}
		uid, _ := strconv.ParseUint(other.Uid, 10, 32)
		gid, _ := strconv.ParseUint(other.Gid, 10, 32)
		d.User, d.credential = other.Username, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	d.own(t, d.Path)
	return d
}

func (d *Dir) own(t testing.TB, path string) {
	t.Helper()
	if d.credential != nil {
		if err := os.Chown(path, int(d.credential.Uid), int(d.credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// Write makes or replaces a file that only the servers' user may read, and returns its path.
func (d *Dir) Write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(d.Path, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	d.own(t, path)
	return path
}

// Mkdir makes a directory and returns its path.
func (d *Dir) Mkdir(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(d.Path, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	d.own(t, path)
	return path
}

// Limit has a directory below hold no more than so many bytes. Only root may.
func (d *Dir) Limit(t testing.TB, path string, bytes int64) {
	t.Helper()
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d", bytes)); err != nil {
		t.Skipf("set-up: a file system of limited size can't be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d.own(t, path)
}

// Command runs a program in the directory as its user; it dies with the test.
func (d *Dir) Command(ctx context.Context, p Program, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Dir = d.Path
	cmd.Env = append(append(os.Environ(), "HOME="+d.Path, "LC_ALL=C"), p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.credential, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Process is a server that runs: a process of this machine, or a container.
type Process struct {
	running
	done chan struct{} // closed when it has ended
}

// running is what Process needs of either.
type running interface {
	signal(sig syscall.Signal) error
	// kill ends it at once, with all that belongs to it, and so that nothing goes on when done is closed and it has returned.
	kill(done <-chan struct{})
	pause()
	resume()
	// log is the end of what it has said.
	log() []byte
	// remove leaves nothing of one that has ended.
	remove()
}

// Run starts a server whose output is shown when it doesn't answer.
func (d *Dir) Run(t testing.TB, p Program, args ...string) *Process {
	t.Helper()
	r := &Process{done: make(chan struct{})}
	var wait func() error
	if p.Contained() {
		c := d.contain(t, p, args)
		r.running, wait = c, c.wait
	} else {
		c := d.start(t, p, args)
		r.running, wait = c, c.cmd.Wait
	}
	go func() { _ = wait(); close(r.done) }()
	return r
}

// Signal asks the server for something.
func (r *Process) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := r.signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the server and its children as a crash would, and returns when all are gone.
func (r *Process) Kill() { r.kill(r.done) }

// Pause stops the server and its children where they are, so that it hangs; Resume has them go on.
func (r *Process) Pause() { r.pause() }

// Resume has a server go on that was paused.
func (r *Process) Resume() { r.resume() }

// child is a process of this machine. Its output goes to a file in the directory.
type child struct {
	cmd    *exec.Cmd
	output string
}

func (d *Dir) start(t testing.TB, p Program, args []string) child {
	t.Helper()
	output := filepath.Join(d.Path, "log")
	log, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := d.Command(context.WithoutCancel(t.Context()), p, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", p.Path, err)
	}
	return child{cmd, output}
}

func (c child) signal(sig syscall.Signal) error { return c.cmd.Process.Signal(sig) }

// kill takes PostgreSQL's children by themselves: they are groups of their own, and would go on for a moment, in which no other server may
// take up the data.
func (c child) kill(done <-chan struct{}) {
	pid := c.cmd.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // so that it makes no more of them
	children := childrenOf(pid)
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	<-done
	for _, child := range children {
		for deadline := time.Now().Add(5 * time.Second); runs(child) && time.Now().Before(deadline); {
			<-time.After(time.Millisecond)
		}
	}
}

func (c child) pause()  { c.all(syscall.SIGSTOP) }
func (c child) resume() { c.all(syscall.SIGCONT) }

func (c child) all(sig syscall.Signal) {
	for _, pid := range append(childrenOf(c.cmd.Process.Pid), c.cmd.Process.Pid) {
		_ = syscall.Kill(pid, sig)
	}
}

func (c child) log() []byte {
	log, _ := os.ReadFile(c.output)
	return log[max(0, len(log)-4000):]
}

func (c child) remove() {}

// runs reports whether a process holds anything still: one that nobody has waited for doesn't.
func runs(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !bytes.HasPrefix(data[bytes.LastIndexByte(data, ')')+1:], []byte(" Z"))
}

// childrenOf looks through all processes for those of a parent.
func childrenOf(parent int) (children []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		data, _ := os.ReadFile(stat)
		// 123 (name, which may hold anything) S 1 …
		_, rest, _ := strings.Cut(string(data[bytes.LastIndexByte(data, ')')+1:]), " ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat))); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}

// End has the server end soon by a signal that means so, or by force.
func (r *Process) End(sig syscall.Signal) {
	_ = r.signal(sig)
	select {
	case <-r.done:
		r.remove()
	case <-time.After(5 * time.Second):
		r.Kill()
	}
}

// Await asks until the server answers, which ends the test when it has died or takes too long.
func (r *Process) Await(t testing.TB, answers func(ctx context.Context) error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := answers(ctx)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-r.done:
			err = fmt.Errorf("it ended: %w", err)
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
		}
		t.Fatalf("the server doesn't answer: %v\n%s", err, r.log())
	}
}
