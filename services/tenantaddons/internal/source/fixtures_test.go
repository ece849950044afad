package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	helmregistry "helm.sh/helm/v4/pkg/registry"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

const (
	user     = "reader"
	password = "correct-horse"
)

// server is an HTTPS server that records its requests.
type server struct {
	*httptest.Server
	host string
	// ca is the authority of its certificate, as PEM.
	ca []byte

	mu       sync.Mutex
	requests []*http.Request
}

// serve serves h by TLS until the test ends.
func serve(t *testing.T, h http.Handler) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Clone(context.Background()))
		s.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	// Clients that don't trust it are part of the tests.
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	s.host = strings.TrimPrefix(s.URL, "https://")
	s.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s
}

// count is how many requests have been made for a path that ends so.
func (s *server) count(suffix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if strings.HasSuffix(r.URL.Path, suffix) {
			n++
		}
	}
	return n
}

// authorized are the paths that were asked for with credentials.
func (s *server) authorized() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paths []string
	for _, r := range s.requests {
		if r.Header.Get("Authorization") != "" {
			paths = append(paths, r.URL.Path)
		}
	}
	return paths
}

// files serves files by their paths.
type files map[string][]byte

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, ok := f[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(data)
}

// login serves h to those who have user and password.
func login(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// trust are credentials with the server's authority alone.
func (s *server) trust() map[string][]byte { return map[string][]byte{"ca.crt": s.ca} }

// full are credentials with user and password, too.
func (s *server) full() map[string][]byte {
	return map[string][]byte{"ca.crt": s.ca, "username": []byte(user), "password": []byte(password)}
}

// newRegistry starts an OCI registry by TLS, with a password.
func newRegistry(t *testing.T) *server {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	htpasswd := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(htpasswd, fmt.Appendf(nil, "%s:%s\n", user, hash), 0o600); err != nil {
		t.Fatal(err)
	}
	return serve(t, newApp(t, configuration.Auth{"htpasswd": configuration.Parameters{"realm": "test", "path": htpasswd}}))
}

// newRegistryWithoutLogin is one that everybody may read and write.
func newRegistryWithoutLogin(t *testing.T) http.Handler {
	t.Helper()
	return newApp(t, nil)
}

func newApp(t *testing.T, auth configuration.Auth) http.Handler {
	t.Helper()
	config := &configuration.Configuration{Auth: auth}
	config.Storage = configuration.Storage{"inmemory": configuration.Parameters{}, "delete": configuration.Parameters{"enabled": true}}
	logrus.SetOutput(io.Discard)
	return handlers.NewApp(t.Context(), config)
}

// push pushes a chart as Helm does, and returns the digest of its manifest.
func (s *server) push(t *testing.T, repository, version string, archive []byte) string {
	t.Helper()
	client, err := helmregistry.NewClient(helmregistry.ClientOptHTTPClient(s.Client()), helmregistry.ClientOptBasicAuth(user, password),
		helmregistry.ClientOptCredentialsFile(filepath.Join(t.TempDir(), "config.json")))
	if err != nil {
		t.Fatal(err)
	}
	result, err := client.Push(archive, s.host+"/"+repository+":"+version, helmregistry.PushOptStrictMode(false))
	if err != nil {
		t.Fatal(err)
	}
	return result.Manifest.Digest
}

// repository is a client of a repository of the registry.
func (s *server) repository(t *testing.T, name string) *remote.Repository {
	t.Helper()
	repo, err := remote.NewRepository(s.host + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	login := auth.Credential{Username: user, Password: password}
	repo.Client = &auth.Client{Client: s.Client(), Credential: auth.StaticCredential(s.host, login)}
	return repo
}

// pushArtifact pushes layers with a media type, as flux push artifact does, and returns the digest of its manifest.
func (s *server) pushArtifact(t *testing.T, name, tag, mediaType string, layers ...[]byte) string {
	t.Helper()
	repo := s.repository(t, name)
	var descs []ocispec.Descriptor
	for _, layer := range layers {
		desc := content.NewDescriptorFromBytes(mediaType, layer)
		if err := repo.Push(t.Context(), desc, bytes.NewReader(layer)); err != nil {
			t.Fatal(err)
		}
		descs = append(descs, desc)
	}
	manifest, err := oras.PackManifest(t.Context(), repo, oras.PackManifestVersion1_1, "application/vnd.cncf.flux.config.v1+json",
		oras.PackManifestOptions{Layers: descs, ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: "2026-01-01T00:00:00Z"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Tag(t.Context(), manifest, tag); err != nil {
		t.Fatal(err)
	}
	return manifest.Digest.String()
}

// remove deletes what has the digest.
func (s *server) remove(t *testing.T, name, digest string) {
	t.Helper()
	repo := s.repository(t, name)
	desc, err := repo.Resolve(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Delete(t.Context(), desc); err != nil {
		t.Fatal(err)
	}
}

// newChart is a chart that makes a ConfigMap; change changes it.
func newChart(name, version string, change func(*chart.Chart)) *chart.Chart {
	c := &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: chart.APIVersionV2, Name: name, Version: version},
		Templates: []*common.File{{Name: "templates/configmap.yaml", Data: []byte(
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n")}},
	}
	if change != nil {
		change(c)
	}
	return c
}

// pack makes the archive of a chart, as helm package does.
func pack(t *testing.T, c *chart.Chart) []byte {
	t.Helper()
	p, err := chartutil.Save(c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// tarball makes a tar.gz of files.
func tarball(t *testing.T, content map[string]string) []byte {
	t.Helper()
	var headers []tar.Header
	for _, name := range slices.Sorted(maps.Keys(content)) {
		headers = append(headers, tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content[name]))})
	}
	return tarOf(t, headers, content)
}

func tarOf(t *testing.T, headers []tar.Header, content map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content[h.Name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// secret is the origin of what needs credentials.
func secret() tenantaddon.Origin { return tenantaddon.Origin{Credentials: "login"} }

func chartSpec(c tenantaddon.Chart) *tenantaddon.TenantAddonSpec {
	return &tenantaddon.TenantAddonSpec{Chart: &c, TargetNamespace: "kube-system"}
}

func manifestsSpec(m tenantaddon.Manifests) *tenantaddon.TenantAddonSpec {
	return &tenantaddon.TenantAddonSpec{Manifests: &m, TargetNamespace: "kube-system"}
}

func kustomizationSpec(k tenantaddon.Kustomization) *tenantaddon.TenantAddonSpec {
	return &tenantaddon.TenantAddonSpec{Kustomization: &k, TargetNamespace: "kube-system"}
}

// resolve resolves with a Fetcher of its own.
func resolve(t *testing.T, spec *tenantaddon.TenantAddonSpec, in Inputs, pinned string) (*Content, error) {
	t.Helper()
	return New().Resolve(t.Context(), spec, in, pinned)
}

// mustResolve fails the test on an error.
func mustResolve(t *testing.T, spec *tenantaddon.TenantAddonSpec, in Inputs) *Content {
	t.Helper()
	c, err := resolve(t, spec, in, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustFail checks the reason of an error and that its message has all of parts, and nothing that is secret.
func mustFail(t *testing.T, err error, reason string, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %s with %q", reason, parts)
	}
	if got := Reason(err); got != reason {
		t.Errorf("reason %q of %q, want %q", got, err, reason)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q doesn't say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("error %q holds the password", err)
	}
}
