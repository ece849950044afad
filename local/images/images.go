// Package images says what the name of a container image runs as on the local stack, and builds it.
//
// There is no registry and no container runtime here: an image is a Go module of its own beside this file
// (kubernetes-v1.36.3, kubernetes-v1.35.4, etcd, kine, konnectivity, nats-server, versitygw, cluster-api, cluster-api-v1.13,
// kamaji-provider), built from the module proxy into a cache, and "pulling" an image is building it. The registry an image name begins with
// doesn't matter; its last path element and its tag do.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/local/progress"
)

// Default is the Kubernetes that the management cluster itself runs.
const Default = "kubernetes-v1.36.3"

// Etcd is the module the etcd server is built from, NATS that of the NATS server.
const (
	Etcd = "etcd"
	NATS = "nats-server"
	// Gate is the program that pods have while their data move.
	Gate = "stoker-gate"
	// Konnectivity is the module of konnectivity's server and agent.
	Konnectivity = "konnectivity"
	// S3 is an S3 server. Tests alone run it, so that it isn't among Names.
	S3 = "versitygw"
	// ClusterAPI has Cluster API's own programs, ClusterAPIBefore those of its minor before, and KamajiProvider Kamaji's provider for it. Each
	// has its CRDs and other manifests below [Manifests]. Tests alone run them.
	ClusterAPI       = "cluster-api"
	ClusterAPIBefore = "cluster-api-v1.13"
	KamajiProvider   = "kamaji-provider"
	// Flux has controllers of Flux, and their CRDs. Tests alone run them.
	Flux = "flux"
	// ArgoCD has Argo CD, whose one program is each of its components by the name in ARGOCD_BINARY_NAME, and its CRDs. Tests alone run it.
	ArgoCD = "argo-cd"
)

// Manifests is the directory, beside the programs of an image, that has the manifests which its module has, by their paths there.
const Manifests = "manifests"

// image is one module below this directory.
type image struct {
	name      string   // of the binary in the cache, and the directory of the module unless dir says another
	dir       string   // directory of the module, when versions share it
	modfile   string   // the module's go.mod, when it isn't that: go's -modfile
	version   string   // the tag of an image reference, with its leading v
	also      string   // another tag that it stands for
	programs  []string // what it can run as: the last path element of an image reference
	kube      bool     // a Kubernetes: one binary for all programs
	own       bool     // Stoker's own, of whatever tag: a program of a module elsewhere in the tree
	pkg       string   // its package, when it isn't the module's root
	tools     []string // packages of another module, one for each of programs: its module only requires that one, as tools
	manifests []string // paths in the other module that manifests are copied from
	stamped   []string // packages that the version is stamped in
	tests     bool     // for tests alone: built when it is asked for by its name
}

var (
	kubernetesPrograms = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubeadm"}
	kubernetesVersions = []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"}
	clusterAPIVersions = []string{"sigs.k8s.io/cluster-api/version"}
)

// catalog is every image there is. Versions of Kubernetes share a program; each has a go.mod of its own.
var catalog = []image{
	{name: "kubernetes-v1.36.3", dir: "kubernetes", version: "v1.36.3", programs: kubernetesPrograms, kube: true, stamped: kubernetesVersions},
	{
		name: "kubernetes-v1.35.4", dir: "kubernetes", modfile: "v1.35.4.mod", version: "v1.35.4",
		programs: kubernetesPrograms, kube: true, stamped: kubernetesVersions,
	},
	{name: "etcd", version: "v3.6.16", programs: []string{"etcd"}},
	{name: "kine", version: "v0.16.4", programs: []string{"kine"}},
	// The release before can't be had from the module proxy; they speak the same protocol.
	{name: Konnectivity, version: "v0.36.0", also: "v0.35.0", programs: []string{"proxy-server", "proxy-agent"}},
	{name: "nats-server", version: "v2.15.2", programs: []string{"nats-server"}},
	{name: S3, version: "v1.8.0", programs: []string{"versitygw"}, tests: true},
	{
		name: ClusterAPI, version: "v1.14.2", programs: []string{"cluster-api-core", "kubeadm-bootstrap", "clusterctl"},
		tools: []string{
			"sigs.k8s.io/cluster-api/core", "sigs.k8s.io/cluster-api/bootstrap/kubeadm", "sigs.k8s.io/cluster-api/cmd/clusterctl",
		},
		manifests: []string{"core/config", "bootstrap/kubeadm/config", "metadata.yaml"}, stamped: clusterAPIVersions, tests: true,
	},
	{
		name: ClusterAPIBefore, version: "v1.13.0", programs: []string{"cluster-api-core", "kubeadm-bootstrap"},
		tools:     []string{"sigs.k8s.io/cluster-api", "sigs.k8s.io/cluster-api/bootstrap/kubeadm"},
		manifests: []string{"config", "bootstrap/kubeadm/config", "metadata.yaml"}, stamped: clusterAPIVersions, tests: true,
	},
	{
		name: KamajiProvider, version: "v0.20.0", programs: []string{"kamaji-provider"},
		tools:     []string{"github.com/clastix/cluster-api-control-plane-provider-kamaji"},
		manifests: []string{"config"}, tests: true,
	},
	{
		name: Flux, version: "v1.9.0", programs: []string{"source-controller", "helm-controller", "kustomize-controller"},
		tools: []string{
			"github.com/fluxcd/source-controller", "github.com/fluxcd/helm-controller", "github.com/fluxcd/kustomize-controller",
		},
		manifests: []string{"config/crd/bases"}, tests: true,
	},
	{
		name: ArgoCD, version: "v3.2.11", programs: []string{"argocd"}, tools: []string{"github.com/argoproj/argo-cd/v3/cmd"},
		manifests: []string{"manifests/crds"}, tests: true,
	},
	{name: Gate, dir: "../../services/datastore", pkg: "./cmd/stoker-gate", programs: []string{Gate}, own: true},
}

// files are those that a build depends on, relative to the image's directory: go.mod, go.sum and the program. Stoker's own are built from
// the module at the repository's root: they may depend on all that is in their service and in pkg. An image without a program of its own
// may have modules below its directory that stand in for others.
func (i image) files(source string) ([]string, error) {
	switch {
	case i.own:
		files, err := moduleFiles(source, ".", filepath.Join("..", "..", "pkg"))
		return append(files, filepath.Join("..", "..", "go.mod"), filepath.Join("..", "..", "go.sum")), err
	case i.tools != nil:
		return moduleFiles(source, ".")
	}
	modfile := cmp.Or(i.modfile, "go.mod")
	return []string{modfile, strings.TrimSuffix(modfile, ".mod") + ".sum", "main.go"}, nil
}

// moduleFiles are the files of Go modules, sorted, without their tests.
func moduleFiles(root string, modules ...string) (files []string, err error) {
	for _, module := range modules {
		err := filepath.WalkDir(filepath.Join(root, module), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".mod", ".sum"}, filepath.Ext(path)) {
				return err
			}
			file, err := filepath.Rel(root, path)
			files = append(files, file)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Names returns the name of every image that an installation may run, as Build takes it.
func Names() []string {
	var names []string
	for _, img := range catalog {
		if !img.tests {
			names = append(names, img.name)
		}
	}
	return names
}

// Version returns the version of an image, with its leading v, and whether there is one of that name.
func Version(name string) (version string, ok bool) {
	img, err := find(name)
	return img.version, err == nil
}

// UnknownError tells that an image reference names nothing that can be built here, and what can.
type UnknownError struct {
	Reference string   // as the pod gave it
	Program   string   // its last path element
	Versions  []string // versions of Program there are; empty if the program itself is unknown
	Programs  []string // every program there is
}

func (e *UnknownError) Error() string {
	if len(e.Versions) == 0 {
		return fmt.Sprintf("image %q: the local stack has no program %q; it has %s",
			e.Reference, e.Program, strings.Join(e.Programs, ", "))
	}
	return fmt.Sprintf("image %q: the local stack has %s only as %s",
		e.Reference, e.Program, strings.Join(e.Versions, ", "))
}

// A Program is what a container of an image runs.
type Program struct {
	Image string // name of the module, as Build takes it
	Name  string // for example kube-apiserver
	Path  string // the executable; empty until the image is built
}

// Resolve says which module and which of its programs an image reference stands for, without building anything.
// The error is an *UnknownError.
func Resolve(reference string) (Program, error) {
	name, tag := split(reference)
	unknown := &UnknownError{Reference: reference, Program: name}
	for _, img := range catalog {
		for _, program := range img.programs {
			if !slices.Contains(unknown.Programs, program) {
				unknown.Programs = append(unknown.Programs, program)
			}
			if program != name {
				continue
			}
			// etcd's own images are tagged v3.6.16 by its project and 3.6.16-0 by Kubernetes.
			if img.own || tag == img.version || tag == img.also && tag != "" || !img.kube && strings.Split(tag, "-")[0] == strings.TrimPrefix(img.version, "v") {
				return Program{Image: img.name, Name: name}, nil
			}
			unknown.Versions = append(unknown.Versions, img.version)
		}
	}
	return Program{}, unknown
}

// split takes the program and the tag out of a reference: registry.example:5000/a/kube-apiserver:v1.36.3@sha256:….
func split(reference string) (name, tag string) {
	reference, _, _ = strings.Cut(reference, "@")
	name = reference[strings.LastIndex(reference, "/")+1:]
	name, tag, _ = strings.Cut(name, ":")
	return name, tag
}

// A Store builds images from a source tree into a cache, or has them built already. It is safe for concurrent use, also by several
// processes.
type Store struct {
	source string
	cache  string
	ready  string // has all images built, in directories of their names; then there is neither source nor cache
}

// At returns the Store of images that are built: dir has a directory for each, with its programs.
func At(dir string) *Store { return &Store{ready: dir} }

// Open returns the Store of the source tree at root (the repository's root). Its cache is $STOKER_CACHE, or stoker in
// the user's cache directory.
func Open(root string) (*Store, error) {
	source, err := filepath.Abs(filepath.Join(root, "local", "images"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(source, "kubernetes", "go.mod")); err != nil {
		return nil, fmt.Errorf("no images to build below %s: is %s the root of the repository? %w", source, root, err)
	}
	cache := os.Getenv("STOKER_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a cache directory (or set STOKER_CACHE): %w", err)
		}
		cache = filepath.Join(user, "stoker")
	}
	cache, err = filepath.Abs(cache)
	if err != nil {
		return nil, err
	}
	return &Store{source: source, cache: cache}, nil
}

// Pull builds the image a reference names, if it has to, and returns the program to run. progress may be nil.
// An *UnknownError means that no retry will help.
func (s *Store) Pull(ctx context.Context, reference string, say progress.Func) (Program, error) {
	program, err := Resolve(reference)
	if err != nil {
		return Program{}, err
	}
	dir, err := s.Build(ctx, program.Image, say)
	if err != nil {
		return Program{}, err
	}
	program.Path = filepath.Join(dir, program.Name)
	return program, nil
}

// Kubectl returns the path of kubectl of the management cluster's version, building it if it has to.
func (s *Store) Kubectl(ctx context.Context) (string, error) { return s.tool(ctx, "kubectl") }

// Kubeadm returns the path of kubeadm of the management cluster's version, building it if it has to.
func (s *Store) Kubeadm(ctx context.Context) (string, error) { return s.tool(ctx, "kubeadm") }

func (s *Store) tool(ctx context.Context, name string) (string, error) {
	dir, err := s.Build(ctx, Default, nil)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

func find(name string) (image, error) {
	for _, img := range catalog {
		if img.name == name {
			return img, nil
		}
	}
	return image{}, errors.New("no image " + name + "; there are " + strings.Join(Names(), ", "))
}
