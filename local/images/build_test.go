package images

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stoker-k8s/stoker/local/progress"
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

func TestBuildTools(t *testing.T) {
	source := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/tools\n\ngo 1.26.0\n\ntool example.org/other/cmd/hello\n\ntool example.org/other\n\n" +
			"require example.org/other v0.0.0\n\nreplace example.org/other => ./other\n",
		"go.sum":                  "",
		"other/go.mod":            "module example.org/other\n\ngo 1.26.0\n",
		"other/main.go":           "package main\n\nfunc main() { print(\"root\") }\n",
		"other/cmd/hello/main.go": "package main\n\nfunc main() { print(\"hello\") }\n",
		"other/metadata.yaml":     "about: other\n",
		"other/config/crd/a.yaml": "kind: A\n",
		"other/config/README.md":  "Read me.\n",
		"other/docs/b.yaml":       "kind: B\n",
	} {
		path := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	img := image{
		name: "others", programs: []string{"core", "etcd"}, tools: []string{"example.org/other", "example.org/other/cmd/hello"},
		manifests: []string{"config", "metadata.yaml"},
	}
	target := filepath.Join(t.TempDir(), "others")
	if err := build(t.Context(), img, source, target, progress.None); err != nil {
		t.Fatal(err)
	}
	var files []string
	err := filepath.WalkDir(target, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, target+"/"))
		}
		return err
	})
	if want := []string{"core", "etcd", "manifests/config/crd/a.yaml", "manifests/metadata.yaml"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("it has %v (%v), not %v", files, err, want)
	}
	if got := run(t, target); got != "hello" {
		t.Errorf("it says %q", got)
	}
	before, err := fingerprint(t.Context(), img, source)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "other", "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if after, err := fingerprint(t.Context(), img, source); err != nil || after == before {
		t.Errorf("what stands in for another module changed: %v, fingerprint %s as before", err, after)
	}
}
