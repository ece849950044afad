package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// file is a file of a source. Its name is relative to the source's root.
type file struct {
	name string
	data []byte
	// link is whether it is a link, which is followed nowhere.
	link bool
}

// budget is what archives may still hold.
type budget struct {
	limit, bytes int64
	files        int
}

func newBudget(bytes int64) *budget { return &budget{limit: bytes, bytes: bytes, files: maxFiles} }

// isGzip says whether data is compressed by gzip.
func isGzip(data []byte) bool { return bytes.HasPrefix(data, []byte{0x1f, 0x8b}) }

// untar reads a tar.gz. It refuses names that lead out of it.
func untar(data []byte, left *budget) ([]file, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("not a tar.gz: %w", err)
	}
	var files []file
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("not a whole tar.gz: %w", err)
		}
		link := header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink
		if header.Typeflag != tar.TypeReg && !link {
			continue
		}
		name := path.Clean(header.Name)
		if err := checkPath(name); err != nil {
			return nil, fmt.Errorf("the archive has the file %q, which %w", header.Name, err)
		}
		if left.files--; left.files < 0 {
			return nil, fmt.Errorf("the archive has more than %d files", maxFiles)
		}
		content, err := io.ReadAll(io.LimitReader(r, left.bytes+1))
		if err != nil {
			return nil, fmt.Errorf("not a whole tar.gz: %w", err)
		}
		if left.bytes -= int64(len(content)); left.bytes < 0 {
			return nil, fmt.Errorf("unpacked, the archive is larger than %d MiB", left.limit>>20)
		}
		files = append(files, file{name: name, data: content, link: link})
	}
}

// checkPath refuses paths that don't stay below where they begin.
func checkPath(p string) error {
	switch {
	case strings.ContainsAny(p, "\\\x00"):
		return errors.New("must not hold a backslash")
	case path.IsAbs(p):
		return errors.New("must be relative")
	case p == ".." || strings.HasPrefix(path.Clean(p), "../") || path.Clean(p) == "..":
		return errors.New("must not lead out of the archive")
	}
	return nil
}

// checkChartSize unpacks a chart and the charts in it, so that Helm's loader, which bounds each of them alone, can't be made to use more.
func checkChartSize(data []byte, left *budget, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("charts lie more than %d deep in each other", maxNested)
	}
	files, err := untar(data, left)
	if err != nil {
		return err
	}
	for _, f := range files {
		if path.Ext(f.name) == ".tgz" && path.Base(path.Dir(f.name)) == "charts" {
			if err := checkChartSize(f.data, left, depth+1); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return nil
}
