// Package debian finds programs of Debian packages: those installed, else those unpacked into a cache, which takes no
// root, asks nothing and starts no service.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/local/progress"
)

// A Program is one of a package.
type Program struct {
	Path string // the executable
	Root string // of the tree it is in: / if it is installed
	Env  []string
}

// Find returns the program whose path below the root matches a pattern; of several the last. say is told when a
// package is fetched. The cache is that of package images ($STOKER_CACHE), for root /var/cache/stoker.
func Find(ctx context.Context, pkg, pattern string, say progress.Func) (Program, error) {
	cache, err := cacheDir()
	if err != nil {
		return Program{}, err
	}
	unpacked := filepath.Join(cache, pkg+"_*")
	for _, root := range []string{"/", unpacked} {
		if p, ok := find(root, pattern); ok {
			return p, nil
		}
	}
	say(pkg+": unpacking the package into "+cache, false)
	if err := unpack(ctx, cache, pkg); err != nil {
		return Program{}, fmt.Errorf("there is no /%s, and package %s can't be unpacked: %w; install it (apt-get install %s)", pattern, pkg, err, pkg)
	}
	p, ok := find(unpacked, pattern)
	if !ok {
		return Program{}, fmt.Errorf("package %s, unpacked in %s, holds no %s", pkg, cache, pattern)
	}
	return p, nil
}

func cacheDir() (string, error) {
	if dir := os.Getenv("STOKER_CACHE"); dir != "" {
		return filepath.Abs(filepath.Join(dir, "debian"))
	}
	if os.Getuid() == 0 {
		return "/var/cache/stoker/debian", nil // tests run these programs as another user, who can't see root's home
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory (or set STOKER_CACHE): %w", err)
	}
	return filepath.Join(dir, "stoker", "debian"), nil
}

func find(root, pattern string) (Program, bool) {
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(found) == 0 {
		return Program{}, false
	}
	p := Program{Path: found[len(found)-1], Root: "/"}
	if root == "/" {
		return p, true
	}
	p.Root = strings.TrimSuffix(p.Path, string(filepath.Separator))
	for range strings.Split(filepath.Clean(pattern), "/") {
		p.Root = filepath.Dir(p.Root)
	}
	var libraries []string
	for _, dir := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
		found, _ := filepath.Glob(filepath.Join(p.Root, dir))
		libraries = append(libraries, found...)
	}
	p.Env = []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")}
	return p, true
}

// wanted are the lines of a simulated installation that say what would be installed, with its version.
var wanted = regexp.MustCompile(`(?m)^Inst (\S+) (?:\[\S+\] )?\((\S+)`)

// unpack downloads a package with what it needs and the system lacks, and unpacks all into one directory of the cache,
// named for the package and its version.
func unpack(ctx context.Context, cache, pkg string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("there is no apt-get to fetch it with")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // public programs
		return err
	}
	dir, err := os.MkdirTemp(cache, ".unpacking-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	run := func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C")
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
		}
		return string(out), err
	}
	var options []string
	simulate := func() (string, error) {
		return run("apt-get", append(slices.Clone(options), "-s", "--no-install-recommends", "install", pkg)...)
	}
	plan, err := simulate()
	if err != nil {
		// Perhaps the system's lists were never fetched, which takes root: fetch them into a place of our own.
		lists := filepath.Join(cache, ".lists")
		if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil { //nolint:gosec // public lists
			return err
		}
		options = []string{"-o", "Dir::State::Lists=" + lists, "-o", "Dir::Cache=" + dir, "-o", "APT::Sandbox::User=root"}
		if _, err := run("apt-get", append(slices.Clone(options), "update")...); err != nil {
			return err
		}
		if plan, err = simulate(); err != nil {
			return err
		}
	}
	version, download := "", append(slices.Clone(options), "download")
	for _, line := range wanted.FindAllStringSubmatch(plan, -1) {
		download = append(download, line[1])
		if line[1] == pkg {
			version = line[2]
		}
	}
	if version == "" {
		return fmt.Errorf("apt-get would not install it: %s", strings.TrimSpace(plan))
	}
	if _, err := run("apt-get", download...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	for _, file := range files {
		if _, err := run("dpkg-deb", "-x", file, root); err != nil {
			return err
		}
	}
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // public programs
		return err
	}
	target := filepath.Join(cache, pkg+"_"+strings.NewReplacer(":", "%3a", "/", "_").Replace(version))
	if err := os.Rename(root, target); err != nil {
		if _, there := os.Stat(target); there != nil { // else somebody else was faster
			return err
		}
	}
	return nil
}
