package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

func put(t testing.TB, l Location, name, text string) {
	t.Helper()
	if err := l.Put(t.Context(), name, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, l Location, name string) string {
	t.Helper()
	r, err := l.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLocations(t *testing.T) {
	places(t, func(t *testing.T, a Access) {
		l := open(t, a)
		for name, test := range map[string]func(*testing.T, Location){
			"an object is there whole, replaced, listed and deleted": testObject,
			"a Put that fails leaves nothing":                        testFailingPut,
			"a large Put that fails leaves what was there":           testLargeFailingPut,
			"a Put whose context ends leaves nothing":                testEndedPut,
			"a Put whose write panics leaves nothing":                testPanickingPut,
			"names that would lead elsewhere are refused":            testNames,
			"what has ended is said so":                              testEndedContext,
		} {
			t.Run(name, func(t *testing.T) { test(t, l) })
			if names := left(t, l); len(names) > 0 {
				t.Fatalf("%s: left %v", name, names)
			}
		}
	})
}

func testObject(t *testing.T, l Location) {
	large := strings.Repeat("0123456789abcdef", 3<<20/16)
	for _, text := range []string{"", "small", large} {
		put(t, l, "a/b/one", text)
		if got := get(t, l, "a/b/one"); got != text {
			t.Errorf("%d bytes are read, and %d were written", len(got), len(text))
		}
	}
	put(t, l, "a/c/two", "2")
	put(t, l, "ab/three", "3")
	for prefix, want := range map[string][]string{
		"": {"a/b/one", "a/c/two", "ab/three"}, "a": {"a/b/one", "a/c/two", "ab/three"}, "a/": {"a/b/one", "a/c/two"}, "a/b/": {"a/b/one"},
		"a/b/one": {"a/b/one"}, "nothing/": nil, "a/b/one/": nil,
	} {
		var names []string
		for o, err := range l.List(t.Context(), prefix) {
			if err != nil {
				t.Fatalf("list %q: %v", prefix, err)
			}
			if o.Name == "a/b/one" && o.Size != int64(len(large)) || o.Changed.IsZero() {
				t.Errorf("listed as %+v", o)
			}
			names = append(names, o.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("list %q: %v, want %v", prefix, names, want)
		}
	}
	for range l.List(t.Context(), "") {
		break // no more than that it can be left
	}
	for _, name := range []string{"a/b/one", "a/b/one", "a/c/two", "ab/three", "never/was"} {
		if err := l.Delete(t.Context(), name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	if _, err := l.Get(t.Context(), "a/b/one"); !errors.Is(err, ErrNotFound) {
		t.Errorf("read what is deleted: %v", err)
	}
}

func testFailingPut(t *testing.T, l Location) {
	for _, failure := range []error{errors.New("no more"), io.EOF, io.ErrUnexpectedEOF, context.Canceled} {
		for _, size := range []int{0, 100, wholeSize + 100} {
			err := l.Put(t.Context(), "a/b/one", func(w io.Writer) error {
				if _, err := w.Write(make([]byte, size)); err != nil {
					return err
				}
				return failure
			})
			if err != failure { //nolint:errorlint // the same, not wrapped
				t.Errorf("after %d bytes: %v, want %v", size, err, failure)
			}
			if names := left(t, l); len(names) > 0 {
				t.Fatalf("after %d bytes: left %v", size, names)
			}
		}
	}
}

func testLargeFailingPut(t *testing.T, l Location) {
	put(t, l, "a/b/one", "before")
	failure := errors.New("no more")
	err := l.Put(t.Context(), "a/b/one", func(w io.Writer) error {
		for range 40 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
		if names := left(t, l); len(names) != 2 || !strings.HasPrefix(names[1], "part of a/b/") {
			t.Errorf("what is being written isn't seen: %v", names)
		}
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("want %v: %v", failure, err)
	}
	if got := get(t, l, "a/b/one"); got != "before" {
		t.Errorf("what was there is %.20q", got)
	}
	if names := left(t, l); len(names) != 1 {
		t.Errorf("left %v", names)
	}
	if err := l.Delete(t.Context(), "a/b/one"); err != nil {
		t.Error(err)
	}
}

func testEndedPut(t *testing.T, l Location) {
	for _, size := range []int{100, 20 << 20} {
		ctx, cancel := context.WithCancel(t.Context())
		err := l.Put(ctx, "a/b/one", func(w io.Writer) error {
			_, err := w.Write(make([]byte, size))
			cancel()
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d bytes: %v", size, err)
		}
		if names := left(t, l); len(names) > 0 {
			t.Errorf("after %d bytes: left %v", size, names)
		}
	}
}

func testPanickingPut(t *testing.T, l Location) {
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = l.Put(t.Context(), "a/b/one", func(w io.Writer) error { _, _ = w.Write(make([]byte, 100)); panic("no more") })
	}()
}

func testNames(t *testing.T, l Location) {
	for _, name := range []string{
		"", "/a", "a/", "a//b", "..", "../a", "a/../../b", "a/./b", ".a", "a/.b", `a\b`, "a\x00b", "a\nb", "a b", "ä", strings.Repeat("a", 901),
	} {
		_, err := l.Get(t.Context(), name)
		for what, err := range map[string]error{
			"get": err, "delete": l.Delete(t.Context(), name),
			"put": l.Put(t.Context(), name, func(io.Writer) error { t.Errorf("%q is written", name); return nil }),
		} {
			if err == nil || errors.Is(err, ErrNotFound) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
		for o, err := range l.List(t.Context(), name+"/") {
			t.Errorf("list %q: %v, %v", name, o, err)
		}
	}
}

func testEndedContext(t *testing.T, l Location) {
	ctx := ended(t)
	_, err := l.Get(ctx, "a")
	errs := map[string]error{"get": err, "put": l.Put(ctx, "a", func(w io.Writer) error { _, err := w.Write([]byte("x")); return err })}
	for _, err := range l.List(ctx, "") {
		errs["list"] = err
	}
	for what, err := range errs {
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrAway) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestADirectoryIsNotLeftBySymbolicLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "out")), os.WriteFile(filepath.Join(outside, "theirs"), []byte("x"), 0o600),
		os.Mkdir(filepath.Join(dir, "lost+found"), 0), os.Mkdir(filepath.Join(dir, ".snapshot"), 0)); err != nil {
		t.Fatal(err)
	}
	l := open(t, Access{URL: "file://" + dir})
	if _, err := l.Get(t.Context(), "out/theirs"); err == nil {
		t.Error("what is outside is read")
	}
	if err := l.Put(t.Context(), "out/ours", func(io.Writer) error { return nil }); err == nil {
		t.Error("outside is written")
	}
	if err := l.Delete(t.Context(), "out/theirs"); err == nil {
		t.Error("outside is deleted")
	}
	if names := left(t, l); len(names) > 0 {
		t.Errorf("listed: %v", names)
	}
}

func TestADirectoryIsForItsUserAlone(t *testing.T) {
	dir := t.TempDir()
	put(t, open(t, Access{URL: "file://" + dir}), "a/b", "x")
	for name, want := range map[string]os.FileMode{"a": 0o700 | os.ModeDir, "a/b": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestUnfinishedUploadsAreDeleted(t *testing.T) {
	s := theServer(t)
	name := s.bucket(t)
	l := open(t, s.accessTo(name))
	core := minio.Core{Client: s.client(t)}
	for range 2 {
		id, err := core.NewMultipartUpload(t.Context(), name, "all/of-them/a/b", minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := core.PutObjectPart(t.Context(), name, "all/of-them/a/b", id, 1, bytes.NewReader(make([]byte, 100)), 100,
			minio.PutObjectPartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if names := left(t, l); !slices.Equal(names, []string{"part of a/b", "part of a/b"}) {
		t.Errorf("listed: %v", names)
	}
	if err := l.Delete(t.Context(), "a/b"); err != nil {
		t.Fatal(err)
	}
	if names := left(t, l); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}

// said fails the test unless an error is of its kind, says what it should, and has no credentials in it.
func said(t *testing.T, err, kind error, text string, a Access) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v: %s", err, kind, text)
	}
	for _, secret := range []string{a.AccessKeyID, a.SecretAccessKey, a.SessionToken} {
		if err != nil && secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("it has credentials in it: %v", err)
		}
	}
}

func TestURLs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for address, text := range map[string]string{
		"":                                  "names no scheme",
		"backups":                           "names no scheme",
		"/backups":                          "names no scheme",
		"ftp://host/backups":                `unknown scheme "ftp"`,
		"s3:bucket":                         "parts that mean nothing",
		"s3://bucket#fragment":              "parts that mean nothing",
		"s3://%zz":                          "can't be read",
		"s3://ID123456:SECRET7890@bucket":   "credentials in it",
		"s3:///prefix":                      "names no bucket",
		"s3://bucket/a/../b":                `prefix "a/../b"`,
		"s3://bucket/a%20b":                 `prefix "a b"`,
		"s3://bucket?endpoint=host:9000":    "https://host:port",
		"s3://bucket?endpoint=host":         "https://host:port",
		"s3://bucket?endpoint=ftp://host":   "https://host:port",
		"s3://bucket?endpoint=https://h/p":  "https://host:port",
		"s3://bucket?endpoint=https://":     "https://host:port",
		"s3://bucket?path-style=often":      "path-style",
		"s3://bucket?regoin=eu-1":           `unknown parameter "regoin"`,
		"s3://bucket?region=%zz":            "can't be read",
		"file://backups":                    `names the host "backups"`,
		"file:///backups?region=eu":         "takes none",
		"file://":                           "names no directory",
		"file://" + file:                    "is no directory",
		"file://" + dir + "/not/there":      dir + "/not/there isn't there",
		"file://user:SECRET7890@h/backups":  "credentials in it",
		"s3://ID123456:SECRET7890@bucket%z": "can't be read",
	} {
		a := Access{URL: address, AccessKeyID: "ID123456", SecretAccessKey: "SECRET7890"}
		_, err := OpenLocation(t.Context(), a)
		said(t, err, ErrRefused, text, a)
	}
	a := Access{URL: "s3://bucket", SecretAccessKey: "SECRET7890"}
	_, err := OpenLocation(t.Context(), a)
	said(t, err, ErrRefused, "access key", a)
	if _, err := os.Stat(filepath.Join(dir, "not")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
}

func TestABucketSaysWhatToChange(t *testing.T) {
	s := theServer(t)
	good := s.accessTo(s.bucket(t))
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	sealed := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(sealed.Close)
	other, _ := certificate(t)
	replace := func(old, by string) func(a *Access) {
		return func(a *Access) { a.URL = strings.Replace(a.URL, old, by, 1) }
	}
	at := func(a *Access, endpoint string) { a.URL = "s3://bucket?region=us-east-1&endpoint=" + endpoint }
	for name, test := range map[string]struct {
		change func(a *Access)
		kind   error
		text   string
	}{
		"another secret":         {func(a *Access) { a.SecretAccessKey = "stoker-secret-other" }, ErrRefused, "give it another access key"},
		"another access key":     {func(a *Access) { a.AccessKeyID = "stoker-access-other" }, ErrRefused, "give it another access key"},
		"another bucket":         {replace("backups-", "no-backups-"), ErrRefused, "isn't there: make it"},
		"a CA of others":         {func(a *Access) { a.CA = other }, ErrRefused, "isn't trusted: give the CA"},
		"no CA":                  {func(a *Access) { a.CA = nil }, ErrRefused, "isn't trusted: give the CA"},
		"a CA that is none":      {func(a *Access) { a.CA = []byte("CA") }, ErrRefused, "no certificate in PEM form"},
		"another host":           {replace("127.0.0.1", "127.0.0.2"), ErrAway, "refused"},
		"another region":         {replace("us-east-1", "eu-1"), ErrRefused, "region=…"},
		"nobody listens":         {func(a *Access) { at(a, "https://127.0.0.1:1") }, ErrAway, "refused"},
		"a host that is unknown": {func(a *Access) { at(a, "https://nobody.invalid") }, ErrAway, "nobody.invalid"},
		"https where http is":    {func(a *Access) { at(a, "https://"+plain.Listener.Addr().String()) }, ErrRefused, "doesn't speak TLS"},
		"http where https is":    {func(a *Access) { at(a, "http://"+sealed.Listener.Addr().String()) }, ErrRefused, "wants TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := good
			test.change(&a)
			_, err := OpenLocation(t.Context(), a)
			said(t, err, test.kind, test.text, a)
			t.Log(err)
		})
	}
	for _, text := range []string{"&path-style=true", "&path-style=1"} {
		a := good
		a.URL += text
		open(t, a)
	}
	a := good
	a.URL = strings.Replace(a.URL, "region=us-east-1", "", 1)
	put(t, open(t, a), "a/b", "the region is found out")
}

func TestNoRoom(t *testing.T) {
	fill := func(w io.Writer) error {
		noise := []byte(strings.Repeat("0123456789abcdef", 1<<16))
		for range 40 {
			if _, err := w.Write(noise); err != nil {
				return err
			}
		}
		return nil
	}
	t.Run("in a directory", func(t *testing.T) {
		dir := t.TempDir()
		limited(t, dir, 4<<20)
		l := open(t, Access{URL: "file://" + dir})
		said(t, l.Put(t.Context(), "a/b", fill), ErrRefused, "no room left", Access{})
		if names := left(t, l); len(names) > 0 {
			t.Errorf("left %v", names)
		}
	})
	t.Run("in a bucket", func(t *testing.T) {
		s := theServer(t)
		name := s.bucket(t)
		limited(t, filepath.Join(s.dir, "buckets", name), 20<<20)
		a := s.accessTo(name)
		l := open(t, a)
		err := l.Put(t.Context(), "a/b", fill)
		said(t, err, ErrRefused, "no room left", a)
		if names := left(t, l); len(names) > 0 {
			t.Errorf("left %v", names)
		}
	})
}
