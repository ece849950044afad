package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Build returns the directory that holds the programs of an image (see Default and Etcd for names), each under its own
// name. What was built before from the same files with the same Go is found in the cache; otherwise it is built, which
// takes minutes for a Kubernetes. Whoever asks meanwhile, in this process or another, waits for that one build.
//
// While it builds or waits, progress (which may be nil) is called with one line every two seconds.
func (s *Store) Build(ctx context.Context, name string, progress func(string)) (string, error) {
	img, err := find(name)
	if err != nil {
		return "", err
	}
	if progress == nil {
		progress = func(string) {}
	}
	source := filepath.Join(s.source, img.name)
	hash, err := fingerprint(ctx, img, source)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", name, err)
	}
	bin := filepath.Join(s.cache, "bin")
	target := filepath.Join(bin, img.name+"-"+hash)
	if built(target) {
		return target, nil
	}
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(bin, "."+img.name+".lock"), func(waited time.Duration) {
		progress(fmt.Sprintf("%s: another process is building it, waiting %s", img.name, waited.Round(time.Second)))
	})
	if err != nil {
		return "", fmt.Errorf("image %s: %w", name, err)
	}
	defer unlock()
	if built(target) {
		return target, nil
	}
	if err := build(ctx, img, source, target, progress); err != nil {
		return "", fmt.Errorf("build image %s: %w", name, err)
	}
	return target, nil
}

func built(target string) bool {
	_, err := os.Stat(target)
	return err == nil
}

// fingerprint covers everything a build depends on: the module's files, the toolchain and the linker's flags.
func fingerprint(ctx context.Context, img image, source string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(data))
		h.Write(data)
	}
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = source
	cmd.Env = environment()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask for the Go version: %w", err)
	}
	h.Write(out)
	h.Write([]byte(ldflags(img)))
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// environment is this process's own, without what would make the build another one.
func environment() []string {
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
}

// ldflags drop symbols and say which Kubernetes this is: a build from the module proxy has no git tags to ask. That is
// what git-archive builds of Kubernetes say of themselves, too.
func ldflags(img image) string {
	flags := "-s -w"
	if !img.kube {
		return flags
	}
	parts := strings.Split(strings.TrimPrefix(img.version, "v"), ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, kv := range [][2]string{
			{"gitVersion", img.version}, {"gitMajor", parts[0]}, {"gitMinor", parts[1]},
			{"gitCommit", ""}, {"gitTreeState", "archive"},
		} {
			flags += fmt.Sprintf(" -X %s.%s=%s", pkg, kv[0], kv[1])
		}
	}
	return flags
}

// build compiles into a directory beside the target and renames it there when it is complete.
func build(ctx context.Context, img image, source, target string, progress func(string)) error {
	temporary := filepath.Join(filepath.Dir(target), ".building-"+img.name+"-")
	// Who holds the lock is the only one who builds this: others of that name were left by a process that was killed.
	leftovers, _ := filepath.Glob(temporary + "*")
	for _, leftover := range leftovers {
		_ = os.RemoveAll(leftover)
	}
	dir, err := os.MkdirTemp(filepath.Dir(target), filepath.Base(temporary))
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	executable := img.programs[0]
	if img.kube {
		executable = "kubernetes"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-buildvcs=false", "-trimpath", "-ldflags", ldflags(img),
		"-o", filepath.Join(dir, executable), ".")
	cmd.Dir = source
	cmd.Env = environment()
	// The compilers are children of go build: all end together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	watch := &buildOutput{}
	cmd.Stderr = watch
	start := time.Now()
	progress(fmt.Sprintf("%s: building", img.name))
	stop := every(2*time.Second, func() {
		progress(fmt.Sprintf("%s: %s, %s", img.name, watch.summary(), time.Since(start).Round(time.Second)))
	})
	err = cmd.Run()
	stop()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w\n%s", err, watch.complaints())
	}
	for _, program := range img.programs {
		if program == executable {
			continue
		}
		if err := os.Symlink(executable, filepath.Join(dir, program)); err != nil {
			return err
		}
	}
	if err := os.Rename(dir, target); err != nil {
		return err
	}
	progress(fmt.Sprintf("%s: built in %s", img.name, time.Since(start).Round(time.Second)))
	return nil
}

// buildOutput reads what go build -v says: a line per package compiled, a line per module downloaded, and errors.
type buildOutput struct {
	mu         sync.Mutex
	rest       []byte
	compiled   int
	downloaded int
	other      []string
}

func (o *buildOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest = append(o.rest, p...)
	for {
		i := bytes.IndexByte(o.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		line := string(o.rest[:i])
		o.rest = o.rest[i+1:]
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			o.downloaded++
		case !strings.ContainsAny(line, " \t"):
			o.compiled++
		default:
			o.other = append(o.other, line)
		}
	}
}

func (o *buildOutput) summary() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.compiled == 0 {
		return fmt.Sprintf("%d modules downloaded", o.downloaded)
	}
	return fmt.Sprintf("%d packages compiled", o.compiled)
}

// complaints are the last lines of output that say what went wrong.
func (o *buildOutput) complaints() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := o.other
	if len(lines) > 30 {
		lines = lines[len(lines)-30:]
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintln(&b, line)
	}
	b.Write(o.rest)
	return b.String()
}

// every calls f once per interval until the function it returns is called; that waits for a call under way.
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

// lock takes an exclusive lock on a file, telling how long it has been waiting. The system drops the lock of a process
// that dies.
func lock(ctx context.Context, path string, waiting func(time.Duration)) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	start, said := time.Now(), time.Now()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if time.Since(said) >= 2*time.Second {
			said = time.Now()
			waiting(time.Since(start))
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
