package imagebuilder

// What is in an image: the program, who it runs as, certificate authorities, time zones, and a directory for temporary files.

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/stoker-k8s/stoker/local/images"
)

// user is who programs run as, by number so that Kubernetes' runAsNonRoot can tell.
const user = "65532:65532"

const (
	certificates = "/etc/ssl/certs/ca-certificates.crt"
	timeZones    = "/usr/share/zoneinfo.zip"
)

// file of an image.
type file struct {
	path    string
	mode    int64
	content []byte
	from    string // a file that the content is in
	link    string // what a symbolic link leads to
}

// base are the files that all images have.
func base(ctx context.Context) ([]file, error) {
	zones, err := zones(ctx)
	if err != nil {
		return nil, err
	}
	return []file{
		{path: "/etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{path: "/etc/nsswitch.conf", mode: 0o644, content: []byte("hosts: files dns\n")},
		{path: "/etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{path: certificates, mode: 0o644, content: authorities()},
		{path: "/tmp/", mode: 0o1777},
		{path: timeZones, mode: 0o644, content: zones},
	}, nil
}

// authorities are Mozilla's, as a pinned Go module has them: those of this machine are another machine's business. The few that Mozilla
// trusts under conditions are left out, for a file can't say conditions.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
	}
	return all.Bytes()
}

// zones are the time zones that come with Go, which the variable ZONEINFO leads Go programs to.
func zones(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask for Go's directory: %w", err)
	}
	return os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "lib", "time", "zoneinfo.zip"))
}

// share is where the node's image has the manifests of an installation, components the programs of other projects.
const (
	share      = "/usr/share/stoker/"
	components = "/usr/lib/stoker/"
)

// layers are what an image adds to the base, from the programs in dir. Each program is a layer, for it may be that of several images. A
// Kubernetes program knows which one it is by its name, so that several images share its file.
func (b Build) layers(i Image, dir string) ([][]file, error) {
	if i.Component != "" {
		from := filepath.Join(dir, i.file())
		if !strings.HasPrefix(i.Component, "kubernetes-") {
			return [][]file{{{path: i.Path, mode: 0o755, from: from}}}, nil
		}
		kubernetes := components + i.Component + "/kubernetes"
		return [][]file{{{path: kubernetes, mode: 0o755, from: from}}, {{path: i.Path, mode: 0o777, link: "../../.." + kubernetes}}}, nil
	}
	all := [][]file{{{path: i.Path, mode: 0o755, from: filepath.Join(dir, i.file())}}}
	for _, tool := range i.Tools {
		name := path.Base(tool)
		all = append(all, []file{{path: binaries + name, mode: 0o755, from: filepath.Join(dir, name)}})
	}
	if !i.Node {
		return all, nil
	}
	more, err := b.node(filepath.Join(dir, "node"))
	return append(all, more...), err
}

// node is what the process node needs: for each component its directory of programs, as package images has it, and manifests.
func (b Build) node(dir string) (all [][]file, err error) {
	var links []file
	for _, component := range images.Names() {
		from, err := filepath.EvalSymlinks(filepath.Join(dir, component))
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			f := file{path: components + component + "/" + e.Name(), mode: 0o755, from: filepath.Join(from, e.Name())}
			if e.Type()&os.ModeSymlink == 0 {
				all = append(all, []file{f})
				continue
			}
			if f.link, err = os.Readlink(f.from); err != nil {
				return nil, err
			}
			f.mode, f.from = 0o777, ""
			links = append(links, f)
		}
	}
	for _, kind := range []string{"crds", "policies", "rbac"} {
		manifests, err := filepath.Glob(filepath.Join(b.Source, "deployments", kind, "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, m := range manifests {
			links = append(links, file{path: share + kind + "/" + filepath.Base(m), mode: 0o644, from: m})
		}
	}
	return append(all, links), nil
}

// writeTar writes files, sorted by the caller, with the directories above them. Equal files are equal bytes.
func writeTar(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	made := map[string]bool{"/": true, ".": true}
	for _, f := range files {
		if err := directories(t, strings.TrimSuffix(f.path, "/"), at, made); err != nil {
			return err
		}
		if err := write(t, f, at); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return t.Close()
}

// directories writes those above a path that weren't before.
func directories(t *tar.Writer, p string, at time.Time, made map[string]bool) error {
	dir := path.Dir(p)
	if made[dir] {
		return nil
	}
	if err := directories(t, dir, at, made); err != nil {
		return err
	}
	made[dir] = true
	return t.WriteHeader(&tar.Header{Name: strings.TrimPrefix(dir, "/") + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: at, Format: tar.FormatPAX})
}

func write(t *tar.Writer, f file, at time.Time) error {
	h := &tar.Header{Name: strings.TrimPrefix(f.path, "/"), Mode: f.mode, ModTime: at, Format: tar.FormatPAX, Typeflag: tar.TypeReg}
	switch {
	case strings.HasSuffix(f.path, "/"):
		h.Typeflag = tar.TypeDir
		return t.WriteHeader(h)
	case f.link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		return t.WriteHeader(h)
	case f.from == "":
		h.Size = int64(len(f.content))
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(f.content)
		return err
	}
	opened, err := os.Open(f.from)
	if err != nil {
		return err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	h.Size = info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(t, opened)
	return err
}

// WriteRoot writes the files of images into the directory dir, each image's below its name: what the Dockerfile copies. Programs is
// where [Build.Programs] put the programs.
func (b Build) WriteRoot(ctx context.Context, selected []Image, programs, dir string) error {
	common, err := base(ctx)
	if err != nil {
		return err
	}
	for _, i := range selected {
		layers, err := b.layers(i, programs)
		if err != nil {
			return err
		}
		for _, files := range append([][]file{common}, layers...) {
			for _, f := range files {
				if err := writeFile(filepath.Join(dir, i.Name), f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func writeFile(root string, f file) error {
	at := filepath.Join(root, filepath.FromSlash(f.path))
	mode := os.FileMode(f.mode & 0o777)
	if strings.HasSuffix(f.path, "/") {
		if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // of an image
			return err
		}
		return os.Chmod(at, mode|os.ModeSticky)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // of an image
		return err
	}
	switch {
	case f.link != "":
		return os.Symlink(f.link, at)
	case f.from != "":
		return copyFile(f.from, at, mode)
	}
	return os.WriteFile(at, f.content, mode)
}
