package gitops

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// charts is a repository of Helm charts over HTTP.
type charts struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte // by path
	index strings.Builder
}

func newCharts(t *testing.T) *charts {
	c := &charts{files: map[string][]byte{}}
	c.index.WriteString("apiVersion: v1\nentries:\n  baseline:\n")
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		data, is := c.files[r.URL.Path]
		if r.URL.Path == "/index.yaml" {
			data, is = []byte(c.index.String()), true
		}
		if !is {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(c.Close)
	return c
}

// publish adds a version of the chart baseline: a ConfigMap with a word.
func (c *charts) publish(t *testing.T, version, word string) {
	t.Helper()
	var data bytes.Buffer
	zip := gzip.NewWriter(&data)
	w := tar.NewWriter(zip)
	for _, f := range [][2]string{
		{"Chart.yaml", "apiVersion: v2\nname: baseline\nversion: " + version + "\n"},
		{"templates/configmap.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: baseline}\ndata: {word: " + word + "}\n"},
	} {
		must(t, w.WriteHeader(&tar.Header{Name: "baseline/" + f[0], Mode: 0o644, Size: int64(len(f[1]))}))
		_, err := w.Write([]byte(f[1]))
		must(t, err)
	}
	must(t, w.Close())
	must(t, zip.Close())
	c.mu.Lock()
	defer c.mu.Unlock()
	path := "/baseline-" + version + ".tgz"
	c.files[path] = data.Bytes()
	fmt.Fprintf(&c.index, "    - {apiVersion: v2, name: baseline, version: %s, urls: [%s]}\n", version, c.URL+path)
}

// git is a repository over HTTP.
type git struct {
	*httptest.Server
	work string
}

func newGit(t *testing.T) *git {
	root := t.TempDir()
	g := &git{work: filepath.Join(root, "work")}
	run(t, root, "init", "-q", "--bare", "-b", "main", "config")
	run(t, root, "clone", "-q", "config", "work")
	path, err := exec.Command("git", "--exec-path").Output()
	must(t, err)
	g.Server = httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	})
	t.Cleanup(g.Close)
	return g
}

// commit has the repository be a ConfigMap with a word.
func (g *git) commit(t *testing.T, word string) {
	t.Helper()
	file := filepath.Join(g.work, "configmap.yaml")
	must(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: {word: "+word+"}\n"), 0o600))
	run(t, g.work, "checkout", "-q", "-B", "main")
	run(t, g.work, "add", ".")
	run(t, g.work, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", word)
	run(t, g.work, "push", "-q", "origin", "main")
}

func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}
