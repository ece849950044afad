package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// directory is a Location in a file system. No name leads out of it, not by symbolic links either.
type directory struct {
	root *os.Root
	path string
}

func openDirectory(ctx context.Context, u *url.URL) (Location, error) {
	switch {
	case u.Host != "":
		return nil, refused("its URL names the host %.100q: a directory is file:///directory, with three slashes", u.Host)
	case u.RawQuery != "":
		return nil, refused("its URL has parameters: a directory takes none")
	case !path.IsAbs(u.Path):
		return nil, refused("its URL names no directory: it is file:///directory")
	}
	d := &directory{path: filepath.Clean(u.Path)}
	var err error
	if info, err := os.Stat(d.path); err == nil && !info.IsDir() {
		return nil, refused("%s is no directory", d.path)
	}
	if d.root, err = os.OpenRoot(d.path); err != nil {
		return nil, d.fail(ctx, "open", err)
	}
	return d, nil
}

// Files that are being written: .<name>.<random>.part, beside the ones that they become.
const (
	partBegin = "."
	partEnd   = ".part"
)

// partial reports whether a file is of a Put that hasn't ended, from the last part of its name.
func partial(base string) bool {
	inner, begins := strings.CutPrefix(base, partBegin)
	inner, ends := strings.CutSuffix(inner, partEnd)
	return begins && ends && segment.MatchString(inner)
}

func (d *directory) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	part, file, err := d.create(name)
	if err != nil {
		return d.fail(ctx, "write "+name, err)
	}
	there := false
	defer func() {
		_ = file.Close()
		if !there {
			_ = d.root.Remove(part)
			d.prune(name)
		}
	}()
	w := &fileWriter{ctx: ctx, file: file}
	if err := write(w); err != nil {
		if w.err != nil && errors.Is(err, w.err) {
			return d.fail(ctx, "write "+name, w.err)
		}
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err = errors.Join(file.Sync(), file.Close()); err == nil {
		err = d.root.Rename(part, name)
	}
	if err == nil {
		there = true
		err = d.sync(name)
	}
	if err != nil {
		return d.fail(ctx, "write "+name, err)
	}
	return nil
}

// create makes a file to write an object into, and the directories it is in. Delete may be removing those at the same time.
func (d *directory) create(name string) (part string, file *os.File, err error) {
	dir, base := path.Split(name)
	part = dir + partBegin + base + "." + rand.Text() + partEnd
	for range 20 {
		if dir != "" {
			err = d.root.MkdirAll(path.Clean(dir), 0o700)
		}
		if err == nil {
			file, err = d.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return part, file, err
		}
	}
	return part, nil, err
}

// sync has the directories that lead to an object survive a crash of the machine.
func (d *directory) sync(name string) error {
	for name != "." {
		name = path.Dir(name)
		dir, err := d.root.Open(name)
		if err != nil {
			return err
		}
		err = dir.Sync()
		_ = dir.Close()
		// Some file systems can't, and don't need to.
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
			return err
		}
	}
	return nil
}

// fileWriter writes until its context ends, and remembers its error.
type fileWriter struct {
	ctx  context.Context
	file *os.File
	err  error
}

func (w *fileWriter) Write(data []byte) (n int, err error) {
	if w.err = context.Cause(w.ctx); w.err == nil {
		n, w.err = w.file.Write(data)
	}
	return n, w.err
}

func (d *directory) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	file, err := d.root.Open(name)
	if err != nil {
		return nil, d.fail(ctx, "read "+name, err)
	}
	return &reader{ctx: ctx, from: file, fail: func(err error) error { return d.fail(ctx, "read "+name, err) }}, nil
}

// reader reads until its context ends.
type reader struct {
	ctx  context.Context
	from io.ReadCloser
	fail func(error) error
}

func (r *reader) Read(data []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	n, err := r.from.Read(data)
	if err != nil && err != io.EOF { //nolint:errorlint // as io.Reader has it
		err = r.fail(err)
	}
	return n, err
}

func (r *reader) Close() error { return r.from.Close() }

func (d *directory) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return d.walk(ctx, prefix, segment.MatchString)
}

func (d *directory) Partial(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return d.walk(ctx, prefix, partial)
}

// walk yields files whose last parts are wanted.
func (d *directory) walk(ctx context.Context, prefix string, wanted func(base string) bool) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		start := path.Dir(prefix + "x")
		if start != "." && !validName(start) {
			return
		}
		err := fs.WalkDir(d.root.FS(), start, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist) && name != ".":
				return nil // never made, or removed meanwhile
			case err != nil:
				return err
			case context.Cause(ctx) != nil:
				return context.Cause(ctx)
			case entry.IsDir() && name != start && !segment.MatchString(entry.Name()):
				return fs.SkipDir
			case !entry.Type().IsRegular() || !wanted(entry.Name()) || !strings.HasPrefix(plain(name), prefix):
				return nil
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(Object{Name: name, Size: info.Size(), Changed: info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Object{}, d.fail(ctx, "list "+prefix, err))
		}
	}
}

// plain is the name of the object that a partial file was to become, with its ending.
func plain(name string) string {
	dir, base := path.Split(name)
	return dir + strings.TrimPrefix(base, partBegin)
}

func (d *directory) Delete(ctx context.Context, name string) error {
	dir, base := path.Split(name)
	if !partial(base) || dir != "" && !validName(path.Clean(dir)) {
		if err := checkName(name); err != nil {
			return err
		}
	}
	names := []string{name}
	if !partial(base) {
		for o, err := range d.Partial(ctx, name+".") {
			if err != nil {
				return err
			}
			names = append(names, o.Name)
		}
	}
	for _, n := range names {
		if err := d.root.Remove(n); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.fail(ctx, "delete "+n, err)
		}
	}
	d.prune(name)
	return nil
}

// prune removes directories that have become empty. One that has something in it stays, and so does the root.
func (d *directory) prune(name string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if d.root.Remove(dir) != nil {
			return
		}
	}
}

func (d *directory) Close() error { return d.root.Close() }

// fail says what an error of the file system means. That of ctx is returned as it is.
func (d *directory) fail(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := &locationError{kind: ErrRefused, from: err}
	cause := err
	for inner := (*fs.PathError)(nil); errors.As(cause, &inner); {
		cause = inner.Err
	}
	is := func(numbers ...error) bool {
		for _, n := range numbers {
			if errors.Is(err, n) {
				return true
			}
		}
		return false
	}
	switch {
	case what == "open" && is(fs.ErrNotExist):
		e.text = fmt.Sprintf("directory %s isn't there: make it, or mount the volume that has it", d.path)
	case is(fs.ErrNotExist) && strings.HasPrefix(what, "read "):
		return fmt.Errorf("%s in %s: %w", strings.TrimPrefix(what, "read "), d.path, ErrNotFound)
	case is(syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG):
		e.text = fmt.Sprintf("directory %s has no room left: free some, or have it hold more: %s: %v", d.path, what, cause)
	case is(fs.ErrPermission, syscall.EROFS):
		e.text = fmt.Sprintf("directory %s doesn't permit it: have it and all below belong to this user: %s: %v", d.path, what, cause)
	case is(syscall.EIO, syscall.ESTALE, syscall.ETIMEDOUT, syscall.ENOTCONN, syscall.EHOSTDOWN, syscall.EMFILE, syscall.ENFILE):
		e.kind, e.text = ErrAway, fmt.Sprintf("directory %s: %s: %v", d.path, what, cause)
	default:
		e.text = fmt.Sprintf("directory %s: %s: %v", d.path, what, cause)
	}
	return e
}
