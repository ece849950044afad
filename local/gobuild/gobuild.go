// Package gobuild compiles programs as Stoker's own are compiled, and tells meanwhile how many packages are left and how
// long they will take.
package gobuild

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/stoker-k8s/stoker/local/progress"
)

// Flags of every build: without paths of this machine, and without what only debuggers read, which costs an eighth of the
// compilers' time. The same flags let builds share what they have in common.
var Flags = []string{"-buildvcs=false", "-trimpath", "-gcflags=all=-dwarf=false"}

// GOGC is for compilers, unless the environment has another value: they take a sixth less time, and more memory.
const GOGC = "400"

// Build is one run of go build.
type Build struct {
	// Name of what is built, for people.
	Name string
	// Dir is where go is called, Packages what it is called with.
	Dir      string
	Packages []string
	// Output is the file to write, or a directory that ends in a slash; relative to Dir.
	Output string
	// LDFlags are the linker's.
	LDFlags string
	// Env of go, to which CGO_ENABLED=0 is added; nil is this process's own.
	Env []string
}

// Run builds. say is called when it begins and ends, and every two seconds between. The error has the compiler's complaints.
func (b Build) Run(ctx context.Context, say progress.Func) error {
	start := time.Now()
	say(b.Name+": building", false)
	out := newOutput(start)
	stop := every(2*time.Second, func() { say(b.Name+": "+out.summary(time.Now()), true) })
	err := b.compile(ctx, out)
	stop()
	ended := "built in"
	if err != nil {
		ended = "not built after"
	}
	say(fmt.Sprintf("%s: %s %s", b.Name, ended, time.Since(start).Round(time.Second)), false)
	return err
}

// compile finds out what is to be compiled, and does it.
func (b Build) compile(ctx context.Context, out *output) error {
	stale, err := b.stale(ctx, out)
	if err != nil {
		return err
	}
	out.compile(stale, time.Now())
	args := append([]string{"build", "-v"}, Flags...)
	args = append(args, "-ldflags", b.LDFlags, "-o", b.Output)
	return b.command(ctx, nil, out, append(args, b.Packages...)...)
}

// Fetch downloads the modules that the build takes, so that a Run later finds them.
func (b Build) Fetch(ctx context.Context) error {
	return b.command(ctx, nil, newOutput(time.Now()), append([]string{"list", "-deps"}, b.Packages...)...)
}

// stale is how many packages the cache doesn't have. It downloads the modules.
func (b Build) stale(ctx context.Context, out *output) (int, error) {
	args := append([]string{"list", "-deps", "-f", staleFormat}, Flags...)
	var list bytes.Buffer
	if err := b.command(ctx, &list, out, append(args, b.Packages...)...); err != nil {
		return 0, err
	}
	return countStale(list.String()), nil
}

// command runs go. What it writes beside its output goes to out.
func (b Build) command(ctx context.Context, stdout *bytes.Buffer, out *output, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.Dir
	cmd.Env = b.Env
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	if os.Getenv("GOGC") == "" {
		cmd.Env = append(cmd.Env, "GOGC="+GOGC)
	}
	// The compilers are children of go: all end together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if stdout != nil {
		cmd.Stdout = stdout
	}
	cmd.Stderr = out
	err := cmd.Run()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, out.complaints())
	}
	return nil
}

// every calls f once per interval until the function it returns is called, once; that waits for a call under way.
func every(interval time.Duration, f func()) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() { close(done); <-stopped }
}
