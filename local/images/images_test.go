package images

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	for reference, want := range map[string]Program{
		"registry.k8s.io/kube-apiserver:v1.36.3":                   {Image: "kubernetes-v1.36.3", Name: "kube-apiserver"},
		"kube-scheduler:v1.35.4":                                   {Image: "kubernetes-v1.35.4", Name: "kube-scheduler"},
		"localhost:5000/a/b/kube-controller-manager:v1.36.3@sha:1": {Image: "kubernetes-v1.36.3", Name: "kube-controller-manager"},
		"quay.io/coreos/etcd:v3.6.16":                              {Image: "etcd", Name: "etcd"},
		"registry.k8s.io/etcd:3.6.16-0":                            {Image: "etcd", Name: "etcd"},
		"docker.io/rancher/kine:v0.16.4":                           {Image: "kine", Name: "kine"},
		"registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0":   {Image: "konnectivity", Name: "proxy-server"},
		"registry.k8s.io/kas-network-proxy/proxy-agent:v0.35.0":    {Image: "konnectivity", Name: "proxy-agent"},
		"cluster-api-core:v1.14.2":                                 {Image: ClusterAPI, Name: "cluster-api-core"},
		"kubeadm-bootstrap:v1.13.0":                                {Image: ClusterAPIBefore, Name: "kubeadm-bootstrap"},
	} {
		got, err := Resolve(reference)
		if err != nil || got != want {
			t.Errorf("Resolve(%q) = %v, %v", reference, got, err)
		}
	}
	for name, test := range map[string]struct {
		reference string
		says      []string
	}{
		"another version names those there are":    {"registry.k8s.io/kube-apiserver:v1.34.0", []string{"v1.34.0", "v1.36.3", "v1.35.4"}},
		"another program names those there are":    {"docker.io/nginx:1", []string{"nginx", "kube-apiserver", "etcd"}},
		"a tag without v is another version":       {"kube-apiserver:1.36.3", []string{"v1.36.3"}},
		"no tag is no version":                     {"kube-apiserver", []string{"v1.36.3"}},
		"an empty reference is an unknown program": {"", []string{"kube-apiserver"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Resolve(test.reference)
			var unknown *UnknownError
			if !errors.As(err, &unknown) {
				t.Fatalf("got %v", err)
			}
			for _, text := range test.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q doesn't name %s", err, text)
				}
			}
		})
	}
}

func TestCatalog(t *testing.T) {
	for _, img := range catalog {
		if img.tools == nil {
			continue
		}
		if len(img.tools) != len(img.programs) {
			t.Errorf("%s: %d programs, %d packages of them", img.name, len(img.programs), len(img.tools))
		}
		data, err := os.ReadFile(filepath.Join(img.name, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, pkg := range img.tools {
			if !regexp.MustCompile(`(?m)^(tool |\t)` + regexp.QuoteMeta(pkg) + `$`).Match(data) {
				t.Errorf("%s is no tool of %s", pkg, img.name)
			}
		}
		if !strings.Contains(string(data), " "+img.version+" ") {
			t.Errorf("%s requires nothing of version %s", img.name, img.version)
		}
	}
	for _, name := range []string{S3, ClusterAPI, ClusterAPIBefore, KamajiProvider, Flux, ArgoCD} {
		if _, ok := Version(name); !ok || slices.Contains(Names(), name) {
			t.Errorf("%s: there is one: %v; installations run %v", name, ok, Names())
		}
	}
}

// TestFilesOfOwnPrograms compares the files that the fingerprint of Stoker's own image covers with the files that go compiles.
func TestFilesOfOwnPrograms(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	img, err := find(Gate)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "local", "images", img.dir)
	files, err := img.files(source)
	if err != nil {
		t.Fatal(err)
	}
	out, err := output(t.Context(), img, source, "list", "-deps", "-f", "{{range .GoFiles}}{{$.Dir}}/{{.}}\n{{end}}{{with .Module}}{{.GoMod}}{{end}}", img.pkg)
	if err != nil {
		t.Fatal(err)
	}
	covered := 0
	for path := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(path, root+"/") {
			continue
		}
		file, err := filepath.Rel(source, path)
		if err != nil || !slices.Contains(files, file) {
			t.Errorf("the gate depends on %s, which its fingerprint doesn't cover (%v)", path, err)
		}
		covered++
	}
	if covered == 0 {
		t.Errorf("go list names no file below %s", root)
	}
}
