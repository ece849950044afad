package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// kine v0.16.4 reads when a lease ends while it notes that it was renewed (pkg/ttl: handle, save). It deletes by revision, so that at worst a
// lease that ends is kept for a moment longer; the detector would end whoever reads a tenant's data for longer than its API server's lease
// of 15 s. test/env builds the services in the same way.
const raceFlags = "-race -gcflags=all=-dwarf=false -gcflags=github.com/k3s-io/kine/pkg/ttl=-race=false"

// stashVariable names the directory in which this program, as the -exec of go test, keeps a test binary in place of running it. go test -c
// can't write two binaries of the same name.
const stashVariable = "STOKER_TEST_STASH"

// builtVariable tells tests that the programs in bin/test are up to date, so that no test compiles.
const builtVariable = "STOKER_TEST_BUILT"

// built holds the compiled tests, by import path.
type built struct {
	dir      string
	binaries map[string]string
}

func (b *built) remove() { _ = os.RemoveAll(b.dir) }

// stash keeps the test binary of the package whose directory is the current one.
func stash(dir, binary string) error {
	at, err := os.Getwd()
	if err != nil {
		return err
	}
	to := filepath.Join(dir, stashName(at))
	if os.Link(binary, to) == nil {
		return nil
	}
	return os.Rename(binary, to)
}

// stashName is the file's name for the binary of a package in a directory.
func stashName(dir string) string {
	return strings.ReplaceAll(strings.Trim(dir, "/"), "/", "+") + ".test"
}

// build compiles the programs that tests start, and the tests of each job's package. Packages that don't compile are reported as failed and
// have no binary.
func build(ctx context.Context, r *report, jobs []job, race bool) (*built, error) {
	// Binaries stay on the disk: memory is for the files of tests.
	dir, err := os.MkdirTemp("", "stoker-run-")
	if err != nil {
		return nil, err
	}
	b := &built{dir: dir, binaries: map[string]string{}}
	dirs, paths := map[string]string{}, []string(nil)
	for _, j := range jobs {
		if dirs[j.pkg.ImportPath] == "" {
			dirs[j.pkg.ImportPath] = j.pkg.Dir
			paths = append(paths, j.pkg.ImportPath)
		}
	}
	if len(paths) == 0 {
		return b, nil
	}
	if err := programs(ctx, jobs); err != nil {
		return b, err
	}
	self, err := os.Executable()
	if err != nil {
		return b, err
	}
	args := []string{"test", "-json", "-vet=off", "-count=1", "-ldflags=-s -w", "-exec", self}
	if race {
		args = append(args, strings.Fields(raceFlags)...)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, paths...)...)
	cmd.Env = append(os.Environ(), stashVariable+"="+dir)
	if race {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1") // the detector is a C library
	}
	inGroup(cmd)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return b, err
	}
	if err := cmd.Start(); err != nil {
		return b, err
	}
	if err := buildOutput(r, out); err != nil {
		return b, errors.Join(err, cmd.Wait())
	}
	wrong := cmd.Wait() // also when a package doesn't compile, which the output says
	for _, path := range paths {
		if file := filepath.Join(dir, stashName(dirs[path])); exists(file) {
			b.binaries[path] = file
		} else if name := strings.TrimPrefix(path, repository); !r.has(name) {
			r.notBuilt(name, []string{fmt.Sprintf("%s: there is no test binary: %v\n", name, wrong)})
		}
	}
	return b, ctx.Err()
}

// buildOutput reports the packages that don't compile.
func buildOutput(r *report, from io.Reader) error {
	wrote := map[string][]string{}
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadBytes('\n')
		var l line
		switch {
		case len(text) == 0:
		case json.Unmarshal(text, &l) != nil:
			r.write(string(text))
		case l.Action == "build-output":
			r.write(l.Output)
		case l.Action == "output":
			wrote[l.Package] = append(wrote[l.Package], l.Output)
		case l.Action == "fail" && l.Test == "":
			r.notBuilt(strings.TrimPrefix(l.Package, repository), wrote[l.Package])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// servers are the programs that the tests of a package start in addition to an installation's own: images of the local stack, and Helm.
// Compiled within a test, they would take the cores from tests that hold leases.
var servers = map[string]struct{ always, long []string }{
	"services/datastore/backup": {always: []string{"versitygw"}},
	"test/clusterapi":           {always: []string{"cluster-api"}, long: []string{"cluster-api-v1.13", "kamaji-provider"}},
	"test/e2e":                  {long: []string{"versitygw"}},
	"test/gitops":               {long: []string{"cluster-api", "flux", "argo-cd"}},
	"test/helm":                 {always: []string{helm}},
	"test/monitoring":           {long: []string{"cluster-api"}},
}

const helm = "helm"

// programs builds what the jobs' tests start: the services, the command line and the NATS server into bin/test, without the race detector, and
// servers.
func programs(ctx context.Context, jobs []job) error {
	services, err := filepath.Glob("services/*/cmd/stoker-*")
	if err != nil {
		return err
	}
	args := []string{"build", "-ldflags=-s -w", "-o", "bin/test/", "./cmd/stoker", "./local/natsserver/cmd/natsserver"}
	for _, s := range services {
		args = append(args, "./"+s)
	}
	if err := goCommand(ctx, ".", nil, args...); err != nil {
		return fmt.Errorf("build the services: %w", err)
	}
	var images []string
	for _, j := range jobs {
		names := servers[j.pkg.name()].always
		if j.long {
			names = append(slices.Clone(names), servers[j.pkg.name()].long...)
		}
		images = append(images, names...)
	}
	slices.Sort(images)
	images = slices.Compact(images)
	if slices.Contains(images, helm) {
		images = slices.DeleteFunc(images, func(name string) bool { return name == helm })
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		args := []string{"build", "-o", filepath.Join(cache, "stoker", helm), "helm.sh/helm/v4/cmd/helm"} // as test/env does
		if err := goCommand(ctx, filepath.Join("tools", "helm"), []string{"GOWORK=off"}, args...); err != nil {
			return fmt.Errorf("build Helm: %w", err)
		}
	}
	if len(images) > 0 {
		if err := goCommand(ctx, ".", nil, append([]string{"run", "./local/cmd/images"}, images...)...); err != nil {
			return fmt.Errorf("build %v: %w", images, err)
		}
	}
	return nil
}

// inGroup gives a command a process group of its own, which gets no signal from the terminal. When its context ends, SIGTERM ends the group, and
// after a minute SIGKILL the command.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
}

// goCommand runs go in a directory. Its output, which may be progress, goes to stderr.
func goCommand(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), os.Stderr, os.Stderr
	inGroup(cmd) // go run ends without the program that it runs
	return cmd.Run()
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
