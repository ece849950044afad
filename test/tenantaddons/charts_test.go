package tenantaddons

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
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

func newCharts(t testing.TB) *charts {
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

// publish adds a version of the chart baseline: a ConfigMap with a word of its values, and further files.
func (c *charts) publish(t testing.TB, version string, more map[string]string) {
	t.Helper()
	files := map[string]string{
		"Chart.yaml":               "apiVersion: v2\nname: baseline\nversion: " + version + "\n",
		"values.yaml":              "word: default\nfrom: default\n",
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: baseline}\ndata: {word: '{{ .Values.word }} from {{ .Values.from }} {{ .Chart.Version }}'}\n",
	}
	maps.Copy(files, more)
	var data bytes.Buffer
	zip := gzip.NewWriter(&data)
	w := tar.NewWriter(zip)
	for n, f := range files {
		must(t, w.WriteHeader(&tar.Header{Name: "baseline/" + n, Mode: 0o644, Size: int64(len(f))}))
		_, err := w.Write([]byte(f))
		must(t, err)
	}
	must(t, w.Close())
	must(t, zip.Close())
	c.mu.Lock()
	defer c.mu.Unlock()
	path := "/baseline-" + version + ".tgz"
	c.files[path] = data.Bytes()
	fmt.Fprintf(&c.index, "    - {apiVersion: v2, name: baseline, version: %s, digest: %x, urls: [%s]}\n", version, sha256.Sum256(data.Bytes()), c.URL+path)
}
