// Package process runs child processes that don't outlive this one.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A Spec is what to run.
type Spec struct {
	Path string   // the executable
	Args []string // its arguments, with the program's own name first
	Env  []string // its whole environment
	Dir  string   // its working directory
	Log  string   // file that takes what it prints, appended; created with mode 0600
	// Input is a file it reads as its standard input; empty for none.
	Input string
	// StopSignal asks it to end; 0 is SIGTERM.
	StopSignal syscall.Signal
	// NotRoot has root's processes think that they run as nobody, for programs that refuse to be root's. Their files are
	// this user's as ever. Linux only, and only where root may make user namespaces.
	NotRoot bool
}

// An Exit is how a process ended.
type Exit struct {
	Code   int            // exit status, 128+signal if a signal ended it
	Signal syscall.Signal // the signal that ended it, or 0
	At     time.Time
}

// A Process runs, or has run, in a process group of its own. It is safe for concurrent use.
type Process struct {
	cmd     *exec.Cmd
	stop    syscall.Signal
	started time.Time
	done    chan struct{}
	exit    Exit // valid once done is closed
	signals sync.Mutex
}

// Start starts a process. The kernel kills it if this process dies, even by SIGKILL.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := &exec.Cmd{
		Path: spec.Path, Args: spec.Args, Env: spec.Env, Dir: spec.Dir,
		Stdout: log, Stderr: log, SysProcAttr: attributes(spec.NotRoot && os.Getuid() == 0),
	}
	if spec.Input != "" {
		input, err := os.Open(spec.Input)
		if err != nil {
			return nil, err
		}
		defer input.Close()
		cmd.Stdin = input
	}
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	p := &Process{cmd: cmd, stop: cmp.Or(spec.StopSignal, syscall.SIGTERM), started: time.Now(), done: make(chan struct{})}
	go p.wait()
	return p, nil
}

// Run runs a process to its end. Its error tells how it ended otherwise than well.
func Run(ctx context.Context, spec Spec) error {
	p, err := Start(spec)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop(ctx, 0)
		return context.Cause(ctx)
	}
	if exit := p.Exit(); exit.Code != 0 {
		text, _ := os.ReadFile(spec.Log)
		return fmt.Errorf("%s ended with code %d; the end of %s:\n%s", spec.Path, exit.Code, spec.Log, text[max(0, len(text)-2000):])
	}
	return nil
}

func (p *Process) wait() {
	err := p.cmd.Wait()
	p.exit.At = time.Now()
	p.exit.Code = p.cmd.ProcessState.ExitCode()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.exit.Signal = status.Signal()
		p.exit.Code = 128 + int(status.Signal())
	} else if err != nil && p.exit.Code == 0 {
		p.exit.Code = 1
	}
	// Whatever the process started itself goes with it.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	close(p.done)
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Started is when the process was started.
func (p *Process) Started() time.Time { return p.started }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit tells how the process ended; call it after Done is closed.
func (p *Process) Exit() Exit { return p.exit }

// Running tells whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process and all it started. A process that has ended is no error. After SIGSTOP it returns when all
// threads of the process have stopped: for some milliseconds they go on.
func (p *Process) Signal(sig syscall.Signal) error {
	p.signals.Lock()
	defer p.signals.Unlock()
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(-p.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to process %d: %w", sig, p.PID(), err)
	}
	if sig == syscall.SIGSTOP {
		awaitStop(p.PID())
	}
	return nil
}

// Stop asks the process to end, kills it after the grace period or when ctx ends, and returns when it is gone.
func (p *Process) Stop(ctx context.Context, grace time.Duration) {
	if !p.Running() {
		return
	}
	_ = p.Signal(syscall.SIGCONT) // a paused process can't end itself
	_ = p.Signal(p.stop)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// spawn starts a command from one thread that lives as long as this process: the kernel's "kill me when my parent
// dies" means the thread that started a process, not the whole parent.
func spawn(cmd *exec.Cmd) error {
	spawner.once.Do(func() {
		spawner.requests = make(chan request)
		go func() {
			runtime.LockOSThread()
			for r := range spawner.requests {
				r.result <- r.cmd.Start()
			}
		}()
	})
	r := request{cmd: cmd, result: make(chan error, 1)}
	spawner.requests <- r
	return <-r.result
}

type request struct {
	cmd    *exec.Cmd
	result chan error
}

var spawner struct {
	once     sync.Once
	requests chan request
}
