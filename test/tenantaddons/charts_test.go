package tenantaddons

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // where the registry keeps its content
	helmregistry "helm.sh/helm/v4/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/kube"
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

// chart is a version of the chart baseline, packed: a ConfigMap with a word of its values, and further files.
func chart(t testing.TB, version string, more map[string]string) []byte {
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
	return data.Bytes()
}

// publish adds a version of the chart.
func (c *charts) publish(t testing.TB, version string, more map[string]string) {
	t.Helper()
	data := chart(t, version, more)
	c.mu.Lock()
	defer c.mu.Unlock()
	path := "/baseline-" + version + ".tgz"
	c.files[path] = data
	fmt.Fprintf(&c.index, "    - {apiVersion: v2, name: baseline, version: %s, digest: %x, urls: [%s]}\n", version, sha256.Sum256(data), c.URL+path)
}

// registry is an OCI registry with a version of the chart, and the Secret "registry" has the authority of its certificate.
func registry(t testing.TB, version string) (host string) {
	t.Helper()
	s := httptest.NewTLSServer(handlers.NewApp(t.Context(), &configuration.Configuration{
		Storage: configuration.Storage{"inmemory": configuration.Parameters{}},
	}))
	t.Cleanup(s.Close)
	host = strings.TrimPrefix(s.URL, "https://")
	client, err := helmregistry.NewClient(helmregistry.ClientOptHTTPClient(s.Client()),
		helmregistry.ClientOptCredentialsFile(filepath.Join(t.TempDir(), "config.json")))
	must(t, err)
	_, err = client.Push(chart(t, version, nil), host+"/charts/baseline:"+version)
	must(t, err)
	must(t, e.Admin.Apply(t.Context(), kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "registry"},
		Data: map[string][]byte{"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})},
	}))
	return host
}
