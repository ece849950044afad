package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Location is where backups are kept: objects by names such as default/demo/20261126T031500Z-4f2a9c/data.age. It is safe for concurrent
// use. Errors wrap [ErrAway] or [ErrRefused], or are those of the context; none contains credentials.
type Location interface {
	// Put makes an object of what write writes, or replaces one. It is there whole or not at all. When write fails, Put returns its error.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Get reads an object, until ctx ends. The error may be ErrNotFound.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List yields the objects whose names begin with prefix, and an error as the last. Those that Put would not make are left out.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Partial yields, in the same way, what Puts have left that were killed, or are being done still. Delete removes it by its name.
	Partial(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object, and what was left of its Puts. It returns nil when there is none.
	Delete(ctx context.Context, name string) error
	// Close releases connections.
	Close() error
}

// Object is one in a Location.
type Object struct {
	Name string
	// Size in bytes; 0 of a partial one in a bucket.
	Size int64
	// Changed is when it was written last; of a partial one in a bucket, when that began.
	Changed time.Time
}

// Access is a location's address and how to get in.
type Access struct {
	// URL is one of
	//
	//	s3://bucket/prefix?endpoint=https://host:port&region=eu-1&path-style=true
	//	file:///directory
	//
	// The prefix and all parameters may be missing: the endpoint is Amazon's then, the region found out, and the bucket in the host's name
	// where that is usual. The directory has to be there: name one within a volume, so that it isn't while the volume isn't mounted.
	URL string
	// AccessKeyID and the rest are for S3. SessionToken may be empty.
	AccessKeyID, SecretAccessKey, SessionToken string
	// CA has certificates in PEM form, trusted beside the system's.
	CA []byte
}

// OpenLocation opens a location, and finds out whether it is there and lets one in. The caller closes it.
func OpenLocation(ctx context.Context, a Access) (Location, error) {
	// The URL may have credentials in it by mistake: it is in no error, and neither is what url.Parse says.
	u, err := url.Parse(a.URL)
	switch {
	case err != nil:
		return nil, refused("its URL can't be read: it is s3://bucket/prefix?endpoint=https://host:port or file:///directory")
	case u.User != nil:
		return nil, refused("its URL has credentials in it: give them apart")
	case u.Fragment != "" || u.Opaque != "":
		return nil, refused("its URL has parts that mean nothing: it is s3://bucket/prefix?endpoint=https://host:port or file:///directory")
	case u.Scheme == "file":
		return openDirectory(ctx, u)
	case u.Scheme == "s3":
		return openBucket(ctx, a, u)
	case u.Scheme == "":
		return nil, refused("its URL names no scheme: begin it with s3:// or file://")
	}
	return nil, refused("its URL has the unknown scheme %.20q: begin it with s3:// or file://", u.Scheme)
}

// locationError says what is the matter and means kind, ErrAway or ErrRefused. What it is from isn't in its text.
type locationError struct {
	kind error
	text string
	from error
}

func (e *locationError) Error() string { return e.kind.Error() + ": " + e.text }

func (e *locationError) Unwrap() []error {
	if e.from == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.from}
}

func refused(format string, args ...any) error {
	return &locationError{kind: ErrRefused, text: fmt.Sprintf(format, args...)}
}

// segment is what may be between slashes in the names of objects. Directories that begin with a dot or are called lost+found are others'.
var segment = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

func validName(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if !segment.MatchString(part) {
			return false
		}
	}
	return len(name) <= 900 // S3 has 1,024 with the prefix
}

func checkName(name string) error {
	if !validName(name) {
		return fmt.Errorf("an object can't have the name %.200q", name)
	}
	return nil
}

// writeError keeps a reader from taking an error of write for its own, io.EOF above all.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

// errGone ends a Put whose write has panicked.
var errGone = errors.New("nobody writes any more")
