package images

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stoker-k8s/stoker/local/gobuild"
	"github.com/stoker-k8s/stoker/local/progress"
)

// Build returns the directory that holds the programs of an image (see Default and Etcd for names), each under its own
// name. What was built before from the same files with the same Go is found in the cache; otherwise it is built, which
// takes minutes for a Kubernetes. Whoever asks meanwhile, in this process or another, waits for that one build.
//
// A Store of built images ([At]) has it, or says that it isn't there.
//
// While it builds or waits, say (which may be nil) gets a line every two seconds.
func (s *Store) Build(ctx context.Context, name string, say progress.Func) (string, error) {
	img, err := find(name)
	if err != nil {
		return "", err
	}
	if s.ready != "" {
		dir := filepath.Join(s.ready, img.name)
		_, err := os.Stat(dir)
		return dir, err
	}
	if say == nil {
		say = progress.None
	}
	source, target, err := s.target(ctx, img)
	if err != nil {
		return "", err
	}
	bin := filepath.Dir(target)
	if built(target) {
		return target, nil
	}
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return "", err
	}
	waits := false
	unlock, err := lock(ctx, filepath.Join(bin, "."+img.name+".lock"), func(waited time.Duration) {
		waits = true
		say(fmt.Sprintf("%s: another process is building it, waiting %s", img.name, waited.Round(time.Second)), true)
	})
	if err != nil {
		return "", fmt.Errorf("image %s: %w", name, err)
	}
	defer unlock()
	if built(target) {
		if waits {
			say(img.name+": built by another process", false)
		}
		return target, nil
	}
	if err := build(ctx, img, source, target, say); err != nil {
		return "", fmt.Errorf("build image %s: %w", name, err)
	}
	return target, nil
}

// Fetch downloads what the build of an image takes, unless it is built already. A Build meanwhile or later finds it.
func (s *Store) Fetch(ctx context.Context, name string) error {
	img, err := find(name)
	if err != nil || s.ready != "" {
		return err
	}
	source, target, err := s.target(ctx, img)
	if err != nil || built(target) {
		return err
	}
	return compilation(img, source).Fetch(ctx)
}

// target says which module an image is built from, and the directory it is built into.
func (s *Store) target(ctx context.Context, img image) (source, target string, err error) {
	source = filepath.Join(s.source, cmp.Or(img.dir, img.name))
	hash, err := fingerprint(ctx, img, source)
	if err != nil {
		return "", "", fmt.Errorf("image %s: %w", img.name, err)
	}
	return source, filepath.Join(s.cache, "bin", img.name+"-"+hash), nil
}

func built(target string) bool {
	_, err := os.Stat(target)
	return err == nil
}

// fingerprint covers everything a build depends on: the module's files, the toolchain, and the compiler's and linker's flags.
func fingerprint(ctx context.Context, img image, source string) (string, error) {
	h := sha256.New()
	files, err := img.files(source)
	if err != nil {
		return "", err
	}
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(data))
		h.Write(data)
	}
	out, err := output(ctx, img, source, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", fmt.Errorf("ask for the Go version: %w", err)
	}
	h.Write(out)
	fmt.Fprintln(h, gobuild.Flags, ldflags(img))
	if img.tools != nil {
		fmt.Fprintln(h, img.programs, img.tools, img.manifests)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// environment is this process's own, without what would make the build another one.
func environment(img image) []string {
	flags := ""
	if img.modfile != "" {
		flags = "-modfile=" + img.modfile
	}
	return append(os.Environ(), "GOWORK=off", "GOFLAGS="+flags)
}

// ldflags drop symbols and say which Kubernetes or Cluster API this is: a build from the module proxy has no git tags to ask. That is
// what git-archive builds of Kubernetes say of themselves, too.
func ldflags(img image) string {
	flags := "-s -w"
	parts := strings.Split(strings.TrimPrefix(img.version, "v"), ".")
	for _, pkg := range img.stamped {
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
func build(ctx context.Context, img image, source, target string, say progress.Func) error {
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
	if img.tools != nil {
		err = buildTools(ctx, img, source, dir, say)
	} else {
		err = buildProgram(ctx, img, source, dir, say)
	}
	if err != nil {
		return err
	}
	return os.Rename(dir, target)
}

// buildProgram compiles the program of an image's own module into a directory, and lets it be called by each of its names.
func buildProgram(ctx context.Context, img image, source, dir string, say progress.Func) error {
	executable := img.programs[0]
	if img.kube {
		executable = "kubernetes"
	}
	run := compilation(img, source)
	run.Output = filepath.Join(dir, executable)
	if err := run.Run(ctx, say); err != nil {
		return err
	}
	for _, program := range img.programs {
		if program == executable {
			continue
		}
		if err := os.Symlink(executable, filepath.Join(dir, program)); err != nil {
			return err
		}
	}
	return nil
}

// buildTools compiles programs of another module into a directory, which go names by their packages, and copies its manifests.
func buildTools(ctx context.Context, img image, source, dir string, say progress.Func) error {
	run := compilation(img, source)
	run.Output = dir + "/"
	if err := run.Run(ctx, say); err != nil {
		return err
	}
	for i, pkg := range img.tools {
		if err := os.Rename(filepath.Join(dir, path.Base(pkg)), filepath.Join(dir, img.programs[i])); err != nil {
			return err
		}
	}
	out, err := output(ctx, img, source, append([]string{"list", "-f", "{{.Module.Dir}}"}, img.tools...)...)
	if err != nil {
		return fmt.Errorf("ask where the manifests are: %w", err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	for _, module := range slices.Compact(modules) {
		if err := copyManifests(module, filepath.Join(dir, Manifests), img.manifests); err != nil {
			return err
		}
	}
	return nil
}

// copyManifests copies what is YAML below paths of one directory to the same paths of another.
func copyManifests(from, to string, paths []string) error {
	source := os.DirFS(from)
	for _, below := range paths {
		err := fs.WalkDir(source, below, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(file) != ".yaml" {
				return err
			}
			data, err := fs.ReadFile(source, file)
			if err != nil {
				return err
			}
			target := filepath.Join(to, file)
			if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
				return err
			}
			return os.WriteFile(target, data, 0o600)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// compilation is how an image is compiled.
func compilation(img image, source string) gobuild.Build {
	packages := img.tools
	if packages == nil {
		packages = []string{cmp.Or(img.pkg, ".")}
	}
	return gobuild.Build{Name: img.name, Dir: source, Packages: packages, LDFlags: ldflags(img), Env: environment(img)}
}

// output is what go says, called in a module as it is when that is built.
func output(ctx context.Context, img image, source string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	cmd.Env = environment(img)
	return cmd.Output()
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
