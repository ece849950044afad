package docker

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

// program is what an image adds to the base. A Kubernetes program knows which one it is by its name, so that several images
// share its file.
func (i Image) program(dir string) []file {
	from := filepath.Join(dir, i.file())
	if i.Component == "" || !strings.HasPrefix(i.Component, "kubernetes-") {
		return []file{{path: i.Path, mode: 0o755, from: from}}
	}
	return []file{{path: "/usr/local/bin/kubernetes", mode: 0o755, from: from}, {path: i.Path, mode: 0o777, link: "kubernetes"}}
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

// WriteRoot writes the files of images into the directory dir, each image's below its name: what the Dockerfile copies.
func WriteRoot(ctx context.Context, selected []Image, programs, dir string) error {
	common, err := base(ctx)
	if err != nil {
		return err
	}
	for _, i := range selected {
		for _, f := range append(common, i.program(programs)...) {
			if err := writeFile(filepath.Join(dir, i.Name), f); err != nil {
				return err
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
		return copyFile(f.from, at)
	}
	return os.WriteFile(at, f.content, mode)
}
