package main

// stoker up: everything on one machine. stoker down: its end.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/target"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// ready ends the output of a start in the background.
const ready = "stoker is up"

// envDetached marks the process in the background; it holds the file descriptor to say so.
const envDetached = "STOKER_UP_DETACHED"

type upFlags struct {
	dir, source string
	files       []string
	datastores  []string
	detach      bool
	verbose     bool
}

func upCommand(a *app) *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Start everything on this machine: management cluster, NATS, the eight services",
		Long: `up starts a real management cluster (etcd, kube-apiserver, controller manager, scheduler, a node that runs pods as
processes), NATS and the eight services, as one process group without root or containers. What it keeps is under .stoker/;
the next up goes on from there. Ctrl-C or ` + "`stoker down`" + ` ends all of it.

It needs Go and the module proxy to build Kubernetes the first time (some minutes), and the source tree: run it inside a
clone, or name one with --source.`,
		Example: `  stoker up
  stoker up --apply examples/tenant.yaml
  stoker up --datastore postgres --apply examples/tenant.yaml
  stoker up --detach && stoker get`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.detach {
				return a.detach(cmd.Context(), f)
			}
			return a.up(cmd.Context(), f)
		},
	}
	c.Flags().StringVar(&f.dir, "dir", target.LocalDir, "`directory` for everything that is kept")
	c.Flags().StringVar(&f.source, "source", "", "root `directory` of the source tree (default: the nearest with a go.work)")
	c.Flags().StringSliceVar(&f.files, "apply", nil, "`file` with tenants to create once everything is up; may be repeated")
	c.Flags().StringSliceVar(&f.datastores, "datastore", nil, "`database` to have a DataStore on, of "+strings.Join(local.Drivers, ", ")+
		": etcd's is named default, others like the database; may be repeated, and the first is that of tenants that name none (default etcd)")
	c.Flags().BoolVarP(&f.detach, "detach", "d", false, "go on in the background once everything is up")
	c.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "also log what happens in detail to <dir>/logs/stoker.log")
	return c
}

func downCommand(a *app) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "down",
		Short: "End what `stoker up` started",
		Long:  "down ends the stack of this directory and waits until nothing of it runs. Its data stays; remove .stoker/ to forget it.",
		Example: `  stoker down
  stoker down && rm -rf .stoker`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.down(cmd.Context(), dir) },
	}
	c.Flags().StringVar(&dir, "dir", target.LocalDir, "`directory` of the stack")
	return c
}

// source finds the source tree.
func source(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.work")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", usagef("no source tree at or above %s; name one with --source", dir)
		}
	}
}

func (a *app) up(ctx context.Context, f upFlags) error {
	src, err := source(f.source)
	if err != nil {
		return err
	}
	for _, d := range f.datastores {
		if !slices.Contains(local.Drivers, d) {
			return usagef("--datastore %s: must be one of %s", d, strings.Join(local.Drivers, ", "))
		}
	}
	var objects []manifest.Object
	if len(f.files) > 0 {
		if objects, err = read(f.files, a); err != nil {
			return err
		}
	}
	started := time.Now()
	say := progress.Lines(a.out, progress.Terminal(a.out), func() string { return fmt.Sprintf("%6.1fs  ", time.Since(started).Seconds()) })
	log, closeLog, err := logTo(filepath.Join(f.dir, "logs", "stoker.log"), f.verbose)
	if err != nil {
		return err
	}
	defer closeLog()
	s, err := stack.Start(ctx, stack.Config{Dir: f.dir, Source: src, Log: log, Progress: say, Drivers: f.datastores})
	var running *local.RunningError
	if errors.As(err, &running) {
		a.sayf(a.out, "stoker is up already: process %d runs the stack in %s\n\n", running.PID, running.Dir)
		a.hints("", f.dir)
		return nil
	}
	if err != nil {
		return err
	}
	if err := tools(s.Local, f.dir); err != nil {
		a.complain(err)
	}
	defer func() {
		say("stopping", false)
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := s.Stop(stopping); err != nil {
			a.complain(err)
		}
		a.sayf(a.out, "stopped; `%s up` goes on from %s\n", program(), f.dir)
	}()
	run, stop := context.WithCancel(ctx)
	services := make(chan error, 1)
	go func() { services <- s.Run(run) }()
	defer func() { stop(); <-services }()
	say("the services are started: "+strings.Join(name.Services(), ", "), false)

	a.flags = target.Target{
		NATS: s.NATS.URL(), Seed: s.NATS.SeedFile(events.UserOperator), Kubeconfig: s.Local.Kubeconfig("admin"), Local: f.dir,
	}
	if err := a.example(run, objects, f.dir); err != nil && run.Err() == nil {
		a.complain(err)
	}
	a.sayf(a.out, "\n%s after %.1f s; Ctrl-C or `%s down` ends it\n", ready, time.Since(started).Seconds(), program())
	detached()
	select {
	case <-ctx.Done():
		return nil
	case err := <-services:
		services <- nil
		return fmt.Errorf("the services ended: %w", err)
	case <-s.Local.Done():
		return fmt.Errorf("the management cluster ended: %w", s.Local.Err())
	}
}

// tools links kubectl and kubeadm of the newest version into <dir>/bin.
func tools(l *local.Stack, dir string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil { //nolint:gosec // links to public programs
		return err
	}
	for _, tool := range []string{l.Kubectl(), l.Kubeadm()} {
		link := filepath.Join(bin, filepath.Base(tool))
		_ = os.Remove(link)
		if err := os.Symlink(tool, link); err != nil {
			return err
		}
	}
	return nil
}

// example creates the tenants, follows them, and says how to go on.
func (a *app) example(ctx context.Context, objects []manifest.Object, dir string) error {
	if len(objects) > 0 {
		a.sayf(a.out, "\n")
		if err := a.apply(ctx, objects, anyGeneration, true, defaultTimeout); err != nil {
			return err
		}
	}
	for _, o := range objects {
		if !o.Key.IsTenant() {
			continue
		}
		data, err := a.kubeconfig(ctx, o.Key, name.KeyAdminConf)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "kubeconfigs", o.Key.Namespace+"-"+o.Key.Name+".kubeconfig")
		if err := writePrivate(file, data); err != nil {
			return err
		}
		a.sayf(a.out, "\nkubeconfig of tenant %s: %s\n\n", o.Key, file)
		a.hints(file, dir)
		return nil
	}
	a.hints("", dir)
	return nil
}

// program is how a person calls this very program from here.
func program() string {
	bin, err := os.Executable()
	if err != nil {
		return "stoker"
	}
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, bin); err == nil && !strings.HasPrefix(rel, "..") {
			return "./" + rel
		}
	}
	return bin
}

// hints are three commands to try.
func (a *app) hints(kubeconfig, dir string) {
	bin := program()
	kubectl := filepath.Join(dir, "bin", "kubectl")
	a.sayf(a.out, "try:\n")
	if kubeconfig != "" {
		a.sayf(a.out, "  %s --kubeconfig %s get ns\n", kubectl, kubeconfig)
		a.sayf(a.out, "  %s --kubeconfig %s create deployment web --image=nginx\n", kubectl, kubeconfig)
	} else {
		a.sayf(a.out, "  %s apply -f examples/tenant.yaml --wait\n", bin)
		a.sayf(a.out, "  %s --kubeconfig %s get tcp -A\n", kubectl, filepath.Join(dir, "kubeconfigs", "admin.kubeconfig"))
	}
	a.sayf(a.out, "  %s get\n", bin)
	if url, err := os.ReadFile(filepath.Join(dir, "http", "url")); err == nil {
		a.sayf(a.out, "\nCloudEvents by HTTP: POST %s with the token in %s (docs/http.md)\n", strings.TrimSpace(string(url)), filepath.Join(dir, "http", "token"))
	}
}

// logTo opens the log of a stack.
func logTo(path string, verbose bool) (*slog.Logger, func(), error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewJSONHandler(f, &slog.HandlerOptions{Level: level})), func() { _ = f.Close() }, nil
}

// detach starts `up` as a process of its own session and shows what it says until it is up.
func (a *app) detach(ctx context.Context, f upFlags) error {
	if err := os.MkdirAll(filepath.Join(f.dir, "logs"), 0o700); err != nil {
		return err
	}
	said, err := os.OpenFile(filepath.Join(f.dir, "logs", "up.log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	bin, err := os.Executable()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	args := []string{"up", "--dir", f.dir}
	if f.source != "" {
		args = append(args, "--source", f.source)
	}
	for _, file := range f.files {
		args = append(args, "--apply", file)
	}
	for _, d := range f.datastores {
		args = append(args, "--datastore", d)
	}
	if f.verbose {
		args = append(args, "--verbose")
	}
	cmd := exec.Command(bin, args...) //nolint:noctx // it outlives this one
	cmd.Stdout, cmd.Stderr = said, said
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), envDetached+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = w.Close()
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	up := make(chan struct{})
	go func() {
		if n, _ := r.Read(make([]byte, 1)); n == 1 {
			close(up)
		}
	}()
	shown := int64(0)
	show := func() {
		n, _ := io.Copy(a.out, io.NewSectionReader(said, shown, 1<<30)) // reads at places; the child appends
		shown += n
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-exited
			return ctx.Err()
		case err := <-exited:
			show()
			if err != nil {
				return errReported
			}
			return nil
		case <-up:
			show()
			a.sayf(a.out, "process %d goes on in the background\n", cmd.Process.Pid)
			return nil
		case <-tick.C:
			show()
		}
	}
}

// detached tells a waiting parent that everything is up.
func detached() {
	if os.Getenv(envDetached) == "" {
		return
	}
	f := os.NewFile(3, "parent")
	_, _ = f.Write([]byte{1})
	_ = f.Close()
}

// down asks the process that runs the stack to end, and waits for it.
func (a *app) down(ctx context.Context, dir string) error {
	pid := local.Running(dir)
	if pid == 0 {
		a.sayf(a.out, "nothing runs in %s\n", dir)
		return nil
	}
	a.sayf(a.out, "ending process %d\n", pid)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %s: %w", strconv.Itoa(pid), err)
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return &timeoutError{fmt.Sprintf("process %d still runs; see %s", pid, filepath.Join(dir, "logs"))}
		case <-tick.C:
			if local.Running(dir) == 0 {
				a.sayf(a.out, "ended\n")
				return nil
			}
		}
	}
}
