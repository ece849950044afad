package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Contents are a tenant's values by their keys; of those that don't live for ever, the value begins with "lives: ".
type Contents map[string]string

func (c Contents) apply(ch driver.Change) {
	switch {
	case ch.Deleted:
		delete(c, ch.Key)
	case ch.Seconds > 0:
		c[ch.Key] = "lives: " + string(ch.Value)
	default:
		c[ch.Key] = string(ch.Value)
	}
}

// all is what an import of contents takes.
func (c Contents) all() iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		for key, value := range c {
			ch := driver.Change{Key: key, Value: []byte(value)}
			if value, lives := strings.CutPrefix(value, "lives: "); lives {
				ch.Value, ch.Seconds = []byte(value), 3600
			}
			if !yield(ch, nil) {
				return
			}
		}
	}
}

// differences are the first few keys in which two contents differ.
func differences(have, want Contents) (all []string) {
	for key := range want {
		if have[key] != want[key] || len(have[key]) == 0 && func() bool { _, ok := have[key]; return !ok }() {
			all = append(all, fmt.Sprintf("%.40q is %.40q, not %.40q", key, have[key], want[key]))
		}
	}
	for key := range have {
		if _, ok := want[key]; !ok {
			all = append(all, fmt.Sprintf("%.40q is there", key))
		}
	}
	if len(all) > 5 {
		all = append(all[:5], fmt.Sprintf("and %d more", len(all)-5))
	}
	return all
}

func equal(t *testing.T, what string, have, want Contents) {
	t.Helper()
	if d := differences(have, want); len(d) > 0 {
		t.Errorf("%s: %s", what, strings.Join(d, "; "))
	}
}

// OpenData provisions an account and opens its data; at the end of the test both are gone.
func OpenData(t *testing.T, d driver.Driver, name string) (driver.Data, driver.Account) {
	t.Helper()
	a := account(name)
	if _, err := d.Provision(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := d.Drop(ctx, a); err != nil {
			t.Error(err)
		}
	})
	return again(t, d, a), a
}

// NoFiles shows that nothing of a tenant lies on disk while its data are open, nor in memory once they are closed: the credentials that a
// kine reads from files there.
func NoFiles(t *testing.T, d driver.Driver, kine bool) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere its credentials are in a directory")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	inMemory := func() (found []string) {
		all, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Error(err)
		}
		for _, fd := range all {
			if what, err := os.Readlink(fd); err == nil && strings.HasPrefix(what, "/memfd:") {
				found = append(found, what)
			}
		}
		return found
	}
	t.Cleanup(func() {
		if left := inMemory(); len(left) > 0 {
			t.Errorf("left in memory: %q", left)
		}
	})
	data, _ := OpenData(t, d, "no-files")
	Fill(t, data, Plain(5))
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > 0 {
		t.Errorf("on disk are %v: %v", files, err)
	}
	if kine != (len(inMemory()) > 0) {
		t.Errorf("in memory are %q", inMemory())
	}
}

// again opens the data of an account that is provisioned.
func again(t *testing.T, d driver.Driver, a driver.Account) driver.Data {
	t.Helper()
	access, err := d.Access(a, driver.Access{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := d.(driver.DataAccess).Data(t.Context(), a, access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened
}

func revision(t *testing.T, d driver.Data) int64 {
	t.Helper()
	r, err := d.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func exported(t *testing.T, d driver.Data, at int64) Contents {
	t.Helper()
	c := Contents{}
	for ch, err := range d.Export(t.Context(), at) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := c[ch.Key]; twice || ch.Deleted || ch.Revision > at {
			t.Errorf("%q is exported twice, or deleted, or at %d", ch.Key, ch.Revision)
		}
		c.apply(ch)
	}
	return c
}

// disturbed is what an export yields after whose first key something is done.
func disturbed(changes iter.Seq2[driver.Change, error], do func()) (Contents, error) {
	have, done := Contents{}, false
	for ch, err := range changes {
		if err != nil {
			return have, err
		}
		if have.apply(ch); !done {
			done = true
			do()
		}
	}
	return have, nil
}

// followed is what contents become by what follows them, and how many changes these were.
func followed(t *testing.T, d driver.Data, c Contents, after, to int64) (Contents, int) {
	t.Helper()
	c, last, n := maps.Clone(c), after, 0
	for ch, err := range d.Follow(t.Context(), after, to) {
		if err != nil {
			t.Fatal(err)
		}
		if ch.Revision < last || ch.Revision == after || ch.Revision > to {
			t.Errorf("revision %d of %q comes after %d", ch.Revision, ch.Key, last)
		}
		last = ch.Revision
		n++
		c.apply(ch)
	}
	return c, n
}

func imported(t *testing.T, d driver.Data, changes iter.Seq2[driver.Change, error]) {
	t.Helper()
	if err := d.Import(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
}

// Plain are contents that every database can hold.
func Plain(n int) Contents {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	c := Contents{
		"binary": string(every), "k8s": "k8s\x00\x0a\x0c\xff\xfe", "empty": "", "lived": "lives: for an hour",
		"big": string(bytes.Repeat(every, 1<<12)), // 1 MiB that doesn't get smaller
		"a":   "1", "a/b": "2", "a.b": "3", "a-b": "4", "a!": "5", "a b": "6", "a:b": "7", "a~": "8",
		"deep/er/and/deeper/still": "9", "roles/default/system:node-proxier": "10",
	}
	random := rand.NewPCG(1, 2)
	big := []byte(c["big"])
	for i := range big {
		big[i] = byte(random.Uint64())
	}
	c["big"] = string(big)
	for i := range n {
		c[fmt.Sprintf("configmaps/default/%05d", i)] = fmt.Sprintf("value %d", i)
	}
	return c
}

// pages are contents of several pages, before and after much of them has changed: a page's worth of keys in a row is gone, and values of
// a megabyte are where those before were small.
func pages() (then, now Contents) {
	then, now = Contents{"after": "1"}, Contents{"after": "1", "added": "1"}
	for i := range 1500 {
		key := fmt.Sprintf("configmaps/default/%05d", i)
		then[key] = fmt.Sprint("then ", i)
		switch {
		case i < 600, i%3 == 0: // deleted
		case i%3 == 1:
			now[key] = fmt.Sprint("now ", i)
		default:
			now[key] = then[key]
		}
	}
	for i := range 12 {
		key := fmt.Sprintf("secrets/default/%05d", i)
		then[key] = strings.Repeat(string(rune('a'+i)), 1<<20)
		now[key] = then[key]
	}
	return then, now
}

// writing changes so many keys, several at once, in a connection of its own; done waits for it.
func writing(t *testing.T, d driver.Driver, a driver.Account, changes int) (done func()) {
	t.Helper()
	writer := again(t, d, a)
	ended := make(chan error, 1)
	go func() {
		ended <- writer.Import(t.Context(), func(yield func(driver.Change, error) bool) {
			for n := range changes {
				if !yield(driver.Change{Key: fmt.Sprintf("live/%d", n%200), Value: fmt.Append(nil, "at ", n), Deleted: n%7 == 0}, nil) {
					return
				}
			}
		})
	}()
	return func() {
		t.Helper()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// Data shows that a driver exports, follows and imports. HostileKeys are taken or refused, and what is taken comes out again.
func Data(t *testing.T, d driver.Driver) {
	t.Run("a follow leads from one export to the next, however much is written meanwhile", func(t *testing.T) {
		t.Parallel()
		src, a := OpenData(t, d, "follow")
		imported(t, src, Plain(300).all())
		at := revision(t, src)
		have := exported(t, src, at)
		equal(t, "first export", have, Plain(300))
		done := writing(t, d, a, 600)
		total := 0
		round := func() {
			to := revision(t, src)
			want := exported(t, src, to)
			became, n := followed(t, src, have, at, to)
			equal(t, fmt.Sprintf("follow from %d to %d", at, to), became, want)
			at, have, total = to, want, total+n
		}
		round()
		round()
		done()
		round()
		t.Logf("%d changes", total)
		if _, n := followed(t, src, have, at, at); n > 0 {
			t.Errorf("%d changes after the end", n)
		}
	})
	t.Run("an export has all pages as they were, though keys were deleted, changed and added", func(t *testing.T) {
		t.Parallel()
		src, _ := OpenData(t, d, "pages")
		then, now := pages()
		imported(t, src, then.all())
		at := revision(t, src)
		imported(t, src, func(yield func(driver.Change, error) bool) {
			for key := range then {
				if _, stays := now[key]; !stays && !yield(driver.Change{Key: key, Deleted: true}, nil) {
					return
				}
			}
		})
		imported(t, src, now.all())
		equal(t, "then", exported(t, src, at), then)
		equal(t, "now", exported(t, src, revision(t, src)), now)
	})
	t.Run("an export lacks nothing that is written again and again meanwhile, or says so", func(t *testing.T) {
		t.Parallel()
		src, a := OpenData(t, d, "busy")
		writer := again(t, d, a)
		want := Plain(1000)
		imported(t, src, want.all())
		want["lease"] = "then"
		imported(t, src, Contents{"lease": "then"}.all())
		const times = 12 // more often than a NATS keeps what a key was
		at := revision(t, src)
		write := func(key string) func() {
			return func() {
				for n := range times {
					imported(t, writer, Contents{key: fmt.Sprint("now ", n)}.all())
				}
			}
		}
		have, err := disturbed(src.Export(t.Context(), at), write("lease"))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "export", have, want)
		at = revision(t, src)
		want["lease"] = fmt.Sprint("now ", times-1)
		if have, err = disturbed(src.Export(t.Context(), at), write("configmaps/default/00003")); errors.Is(err, driver.ErrCompacted) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		equal(t, "export while a key changes that was written first", have, want)
	})
	t.Run("an export lacks nothing that was deleted, made again and written often since, or says so", func(t *testing.T) {
		t.Parallel()
		src, _ := OpenData(t, d, "anew")
		want := Plain(20)
		imported(t, src, want.all())
		at := revision(t, src)
		const key = "configmaps/default/00003"
		for n := range 12 {
			imported(t, src, func(yield func(driver.Change, error) bool) {
				_ = yield(driver.Change{Key: key, Deleted: n == 0}, nil) && yield(driver.Change{Key: key, Value: fmt.Append(nil, n)}, nil)
			})
			revision(t, src) // kine's own key is written as often, and isn't data
		}
		have := Contents{}
		for ch, err := range src.Export(t.Context(), at) {
			if errors.Is(err, driver.ErrCompacted) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			have.apply(ch)
		}
		equal(t, "export", have, want)
	})
	t.Run("what a base lacks a follow from there has", func(t *testing.T) {
		t.Parallel()
		src, a := OpenData(t, d, "base")
		writer := again(t, d, a)
		imported(t, src, Plain(1000).all())
		at := revision(t, src)
		have, err := disturbed(src.Base(t.Context(), at), func() {
			for n := range 12 {
				imported(t, writer, Contents{"configmaps/default/00003": fmt.Sprint("now ", n), "configmaps/default/00500": fmt.Sprint("now ", n)}.all())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		to := revision(t, src)
		became, _ := followed(t, src, have, at, to)
		equal(t, "base and follow", became, exported(t, src, to))
	})
	t.Run("an export has all data, however often a move's own keys are written since", func(t *testing.T) {
		t.Parallel()
		src, _ := OpenData(t, d, "records")
		imported(t, src, Plain(20).all())
		at, record := revision(t, src), int64(0)
		for n := range 12 {
			var err error
			if record, err = src.SetRecord(t.Context(), driver.MoveKey, fmt.Append(nil, n), record); err != nil {
				t.Fatal(err)
			}
			revision(t, src)
		}
		equal(t, "export", exported(t, src, at), Plain(20))
	})
	t.Run("an export waits for a revision that its connection has not heard of yet", func(t *testing.T) {
		t.Parallel()
		src, a := OpenData(t, d, "later")
		imported(t, src, Plain(10).all())
		writer := again(t, d, a)
		const changes = 50
		at := revision(t, src) + changes
		ended := make(chan error, 1)
		go func() {
			for _, err := range src.Export(t.Context(), at) {
				if err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
		for n := range changes {
			imported(t, writer, Contents{"live": fmt.Sprint(n)}.all())
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("what has a time to live keeps it, and ends", func(t *testing.T) {
		t.Parallel()
		src, _ := OpenData(t, d, "lease")
		before := revision(t, src)
		imported(t, src, func(yield func(driver.Change, error) bool) {
			_ = yield(driver.Change{Key: "events/default/long", Value: []byte("v"), Seconds: 3600}, nil) &&
				yield(driver.Change{Key: "events/default/short", Value: []byte("v"), Seconds: 2}, nil)
		})
		for ch, err := range src.Export(t.Context(), revision(t, src)) {
			if err != nil || ch.Key == "events/default/long" && (ch.Seconds < 3500 || ch.Seconds > 3600) {
				t.Errorf("%s lives for %d s: %v", ch.Key, ch.Seconds, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, ok := d.(driver.Replicated); ok { // a NATS, where Compact ends what no kine ends, when it has come to this tenant
			var compacting sync.WaitGroup
			defer compacting.Wait()
			defer cancel()
			compacting.Go(func() {
				for wait := 5 * time.Second; ; wait = time.Second {
					select {
					case <-time.After(wait):
						if _, err := d.(driver.Compactor).Compact(ctx); err != nil {
							t.Log(err) // as of an account that another test removes at the same time
						}
					case <-ctx.Done():
						return
					}
				}
			})
		}
		for ch, err := range src.Follow(ctx, before, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if ch.Deleted {
				if ch.Key != "events/default/short" {
					t.Errorf("%s is deleted", ch.Key)
				}
				break
			}
		}
	})
	t.Run("hostile keys are taken as they are, or refused", func(t *testing.T) {
		t.Parallel()
		src, _ := OpenData(t, d, "hostile")
		want := Contents{}
		for i, key := range append(HostileNames(), "configmaps/../../x", "//", "a//b", "a/", "/", "A", "aB", "\xff", "\x00\xff", driver.HealthKey, strings.Repeat("k/", 400)) {
			value := fmt.Sprint(i)
			err := src.Import(t.Context(), Contents{key: value}.all())
			var bad *driver.KeyError
			switch {
			case err == nil && key != driver.HealthKey:
				want[key] = value
			case err != nil && !errors.As(err, &bad):
				t.Errorf("%.40q: %v", key, err)
			}
		}
		t.Logf("%d taken", len(want))
		equal(t, "export", exported(t, src, revision(t, src)), want)
	})
	t.Run("an import that was cut off is begun again, and what is cleared is gone", func(t *testing.T) {
		t.Parallel()
		dst, a := OpenData(t, d, "cutoff")
		want := Plain(200)
		broken := errors.New("broken")
		for _, n := range []int{0, 1, 50, 150} {
			ctx, cancel := context.WithCancel(t.Context())
			i := 0
			err := dst.Import(ctx, func(yield func(driver.Change, error) bool) {
				for ch := range want.all() {
					if i++; i > n && n%2 == 0 {
						yield(driver.Change{}, broken)
						return
					} else if i > n {
						cancel()
					}
					if !yield(ch, nil) {
						return
					}
				}
			})
			cancel()
			if !errors.Is(err, broken) && !errors.Is(err, context.Canceled) {
				t.Errorf("cut off after %d: %v", n, err)
			}
		}
		second := again(t, d, a)
		imported(t, second, want.all())
		at := revision(t, second)
		equal(t, "export", exported(t, dst, at), want)
		imported(t, second, want.all())
		if _, n := followed(t, dst, want, at, revision(t, dst)); n > 0 {
			t.Errorf("the third import changed %d keys", n)
		}
		if err := second.Clear(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "cleared", exported(t, dst, revision(t, dst)), Contents{})
	})
	t.Run("changes of one key are written in their order", func(t *testing.T) {
		t.Parallel()
		dst, _ := OpenData(t, d, "order")
		const keys, rounds = 7, 9 // of a key, a NATS keeps ten changes
		before := revision(t, dst)
		imported(t, dst, func(yield func(driver.Change, error) bool) {
			for n := range keys * rounds {
				if !yield(driver.Change{Key: fmt.Sprint(n % keys), Value: fmt.Append(nil, n/keys), Deleted: n/keys == 5}, nil) {
					return
				}
			}
		})
		at := map[string]string{}
		for ch, err := range dst.Follow(t.Context(), before, revision(t, dst)) {
			if err != nil {
				t.Fatal(err)
			}
			if ch.Deleted {
				ch.Value = []byte("5")
			}
			if string(ch.Value) <= at[ch.Key] {
				t.Errorf("%s is %s after %s", ch.Key, ch.Value, at[ch.Key])
			}
			at[ch.Key] = string(ch.Value)
		}
		for n := range keys {
			if at[fmt.Sprint(n)] != fmt.Sprint(rounds-1) {
				t.Errorf("%d ends as %s", n, at[fmt.Sprint(n)])
			}
		}
	})
	t.Run("records of a move stay when all is cleared", func(t *testing.T) {
		t.Parallel()
		dst, _ := OpenData(t, d, "cleared")
		records := []string{driver.MoveKey, driver.GateKey("a"), driver.GateKey("b")}
		for _, key := range records {
			if _, err := dst.SetRecord(t.Context(), key, []byte(key), 0); err != nil {
				t.Fatal(err)
			}
		}
		around := Contents{"aa": "1", "stoker-mov": "2", "stoker-move-a": "3", "stoker-move.": "4", "stoker-move0": "5", "zz": "6"}
		imported(t, dst, around.all())
		equal(t, "export", exported(t, dst, revision(t, dst)), around)
		if err := dst.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "cleared", exported(t, dst, revision(t, dst)), Contents{})
		for _, key := range records {
			if value, _, err := dst.Record(t.Context(), key); err != nil || string(value) != key {
				t.Errorf("%s is %q: %v", key, value, err)
			}
		}
	})
	t.Run("a record is read from outside", func(t *testing.T) {
		t.Parallel()
		dst, a := OpenData(t, d, "recorded")
		access, err := d.Access(a, driver.Access{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if value, err := driver.RecordOf(t.Context(), d, a, access, driver.QuotaKey); err != nil || value != nil {
			t.Errorf("one that isn't there is %q: %v", value, err)
		}
		if _, err := dst.SetRecord(t.Context(), driver.QuotaKey, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		if value, err := driver.RecordOf(t.Context(), d, a, access, driver.QuotaKey); err != nil || string(value) != "1" {
			t.Errorf("it is %q: %v", value, err)
		}
		equal(t, "export", exported(t, dst, revision(t, dst)), Contents{})
	})
	t.Run("nobody opens what is another's", func(t *testing.T) {
		t.Parallel()
		_, a := OpenData(t, d, "mine")
		_, b := OpenData(t, d, "theirs")
		access, err := d.Access(b, driver.Access{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		b.Schema, b.Password = a.Schema, "another" // the accounts here have one password
		if access.Credentials != nil {
			b.User = a.User
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if stolen, err := d.(driver.DataAccess).Data(ctx, b, access); err == nil {
			t.Error("it is open")
			_ = stolen.Close()
		}
	})
}

// Compaction shows that a revision that was compacted is an error of its own. etcd is compacted for all its tenants, by its administrator,
// root; nil where each tenant has a database of its own.
func Compaction(t *testing.T, d driver.Driver, root *clientv3.Client) {
	src, _ := OpenData(t, d, "compacted")
	imported(t, src, Contents{"a": "1", "b": "1"}.all())
	at := revision(t, src)
	for i := range 3 {
		imported(t, src, Contents{"a": fmt.Sprint(i + 2), "b": fmt.Sprint(i + 2)}.all())
	}
	now := revision(t, src)
	compact(t, src, root, now)
	Eventually(t, func() error {
		for _, err := range src.Export(t.Context(), at) {
			if errors.Is(err, driver.ErrCompacted) {
				return nil
			}
		}
		return errors.New("it is exported")
	})
	became := Contents{}
	for ch, err := range src.Follow(t.Context(), at, now) {
		if err != nil {
			if !errors.Is(err, driver.ErrCompacted) || errors.Is(err, driver.ErrAway) {
				t.Errorf("follow: %v", err)
			}
			became = nil
			break
		}
		became.apply(ch)
	}
	if became != nil { // the database has it all the same
		equal(t, "follow", became, Contents{"a": "4", "b": "4"})
	}
	equal(t, "the present", exported(t, src, revision(t, src)), Contents{"a": "4", "b": "4"})
}

// Overtaken shows that an export that is under way when its revision is compacted ends with an error, or has all keys as they were.
func Overtaken(t *testing.T, d driver.Driver) {
	src, _ := OpenData(t, d, "overtaken")
	want := Plain(1000)
	imported(t, src, want.all())
	at := revision(t, src)
	have, err := disturbed(src.Export(t.Context(), at), func() {
		later := Contents{}
		for key := range want {
			later[key] = "later"
		}
		imported(t, src, later.all())
		compact(t, src, nil, revision(t, src))
	})
	if errors.Is(err, driver.ErrCompacted) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	equal(t, "export", have, want)
}

func compact(t *testing.T, d driver.Data, root *clientv3.Client, revision int64) {
	t.Helper()
	var err error
	switch d := d.(type) {
	case interface {
		Compact(ctx context.Context, revision int64) error
	}:
		err = d.Compact(t.Context(), revision)
	case interface{ Etcd() *clientv3.Client }:
		if root == nil {
			root = d.Etcd()
		}
		_, err = root.Compact(t.Context(), revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Copy shows that what one driver exports another imports, while the tenant goes on writing, and says how long it took.
// It returns the copy.
func Copy(t *testing.T, from driver.Driver, src driver.Data, a driver.Account, to driver.Driver, name string) (driver.Data, driver.Account) {
	t.Helper()
	dst, b := OpenData(t, to, name)
	done := writing(t, from, a, 100)
	at := revision(t, src)
	began, n := time.Now(), 0
	for _, err := range src.Export(t.Context(), at) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	read := time.Since(began)
	began = time.Now()
	imported(t, dst, src.Export(t.Context(), at))
	copied := time.Since(began)
	next := revision(t, src)
	imported(t, dst, src.Follow(t.Context(), at, next))
	done()
	last := revision(t, src)
	imported(t, dst, src.Follow(t.Context(), next, last))
	equal(t, name, exported(t, dst, revision(t, dst)), exported(t, src, last))
	per := func(took time.Duration) int { return int(float64(n) / took.Seconds()) }
	t.Logf("%s: %d keys; exported %d a second, copied %d a second", name, n, per(read), per(copied))
	return dst, b
}

// Fill imports contents.
func Fill(t *testing.T, d driver.Data, c Contents) {
	t.Helper()
	imported(t, d, c.all())
}
