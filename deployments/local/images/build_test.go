package images

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// sources makes a tree whose etcd is a program that prints one word.
func sources(t *testing.T, word string) *Store {
	t.Helper()
	s := &Store{source: t.TempDir(), cache: t.TempDir()}
	dir := filepath.Join(s.source, "etcd")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":  "module example.org/etcd\n\ngo 1.26.0\n",
		"go.sum":  "",
		"main.go": "package main\n\nfunc main() { print(\"" + word + "\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func run(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(dir, "etcd")).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestBuild(t *testing.T) {
	s := sources(t, "one")
	t.Run("who asks at the same time gets the same, built once", func(t *testing.T) {
		var mu sync.Mutex
		builds, dirs := 0, map[string]bool{}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				// A store of its own, as another process would have.
				other := &Store{source: s.source, cache: s.cache}
				dir, err := other.Build(t.Context(), "etcd", func(line string, _ bool) {
					mu.Lock()
					defer mu.Unlock()
					if line == "etcd: building" {
						builds++
					}
				})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				dirs[dir] = true
			})
		}
		all.Wait()
		if builds != 1 || len(dirs) != 1 {
			t.Errorf("%d builds, %v", builds, dirs)
		}
		for dir := range dirs {
			if got := run(t, dir); got != "one" {
				t.Errorf("it says %q", got)
			}
		}
	})
	t.Run("another source is another build", func(t *testing.T) {
		main := filepath.Join(s.source, "etcd", "main.go")
		data, err := os.ReadFile(main)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(main, []byte(strings.Replace(string(data), "one", "two", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		dir, err := s.Build(t.Context(), "etcd", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := run(t, dir); got != "two" {
			t.Errorf("it says %q", got)
		}
	})
	t.Run("what doesn't compile says why, and leaves nothing", func(t *testing.T) {
		broken := sources(t, "one")
		if err := os.WriteFile(filepath.Join(broken.source, "etcd", "main.go"), []byte("package main\nfunc main() { nonsense }\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := broken.Build(t.Context(), "etcd", nil)
		if err == nil || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("got %v", err)
		}
		left, err := os.ReadDir(filepath.Join(broken.cache, "bin"))
		if err != nil || len(left) != 1 || left[0].Name() != ".etcd.lock" {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	t.Run("to fetch it builds nothing", func(t *testing.T) {
		s := sources(t, "fetched")
		if err := s.Fetch(t.Context(), "etcd"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(s.cache, "bin")); !os.IsNotExist(err) {
			t.Errorf("the cache has something: %v", err)
		}
	})
	t.Run("an end of patience ends it", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := sources(t, "late").Build(ctx, "etcd", nil); err == nil {
			t.Error("it was built")
		}
	})
}
