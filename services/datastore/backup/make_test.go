package backup

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// changes yields what a map has.
func changes(keys map[string]string) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		for key, value := range keys {
			if !yield(driver.Change{Key: key, Value: []byte(value), Revision: 7}, nil) {
				return
			}
		}
	}
}

// noise yields so many keys with values of so many bytes that can't be compressed: the race detector makes compressing slow.
func noise(keys, bytes int) iter.Seq2[driver.Change, error] {
	const size = 4 * window
	pool := make([]byte, size+bytes)
	_, _ = mathrand.NewChaCha8([32]byte{}).Read(pool)
	return func(yield func(driver.Change, error) bool) {
		for i := range keys {
			at := i * bytes % size
			if !yield(driver.Change{Key: fmt.Sprintf("configmaps/default/%08d", i), Value: pool[at : at+bytes]}, nil) {
				return
			}
		}
	}
}

// then is an export that fails, or waits, at its end.
func then(export iter.Seq2[driver.Change, error], end func() error) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		for c, err := range export {
			if !yield(c, err) {
				return
			}
		}
		if err := end(); err != nil {
			yield(driver.Change{}, err)
		}
	}
}

// owner has a secret key that opens backups.
func owner(t testing.TB) *age.X25519Identity {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// source is of a tenant demo with its export still to be set.
func source(recipients ...string) Source {
	return Source{
		Manifest: Manifest{
			Tenant: Tenant{Namespace: "default", Name: "demo", UID: "1b4e28ba"}, Object: json.RawMessage(`{"kind":"TenantControlPlane"}`),
			Stoker: "v1", Kubernetes: "v1.36.3", DataStore: "etcd", Driver: "etcd", Revision: 42, Scheduled: true,
			Began: time.Date(2026, 11, 26, 3, 15, 0, 0, time.UTC),
		},
		Secrets:    []Secret{{Name: "demo-ca", Type: "Opaque", Labels: map[string]string{"a": "b"}, Data: map[string][]byte{"ca.key": {0, 255}}}},
		Recipients: recipients, Now: func() time.Time { return time.Date(2026, 11, 26, 3, 16, 0, 0, time.UTC) }, Export: changes(nil),
	}
}

func mustMake(t testing.TB, to Location, s Source) Manifest {
	t.Helper()
	m, err := Make(t.Context(), to, s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// opened are a backup's keys.
func opened(t testing.TB, from Location, m Manifest, identity *age.X25519Identity) Keys {
	t.Helper()
	ciphertext, err := KeysOf(t.Context(), from, m)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := OpenKeys(m, ciphertext, "# created: today\n# public key: "+identity.Recipient().String()+"\n"+identity.String()+"\n")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// read is what a backup has.
func read(from Location, m Manifest, identity string) (keys map[string]driver.Change, err error) {
	keys = map[string]driver.Change{}
	for c, err := range Data(context.Background(), from, m, identity) {
		if err != nil {
			return keys, err
		}
		keys[c.Key] = c
	}
	return keys, nil
}

// variety is what keys and values may be.
func variety() map[string]driver.Change {
	all := map[string]driver.Change{}
	for _, c := range []driver.Change{
		{Value: []byte("without a name")},
		{Key: "empty", Value: []byte{}},
		{Key: "\x00\xff\n", Value: []byte{0, 1, 2, 255}},
		{Key: "events/a/short", Value: []byte("k8s\x00"), Seconds: 3600},
		{Key: "large", Value: bytes.Repeat([]byte("large"), 1<<20)},
		{Key: strings.Repeat("k", maxKey), Value: []byte("long")},
	} {
		all[c.Key] = c
	}
	for c := range noise(20_000, 100) {
		all[c.Key] = c
	}
	return all
}

func TestWhatIsMadeIsRead(t *testing.T) {
	places(t, func(t *testing.T, a Access) {
		l, one, two := open(t, a), owner(t), owner(t)
		s := source(one.Recipient().String(), two.Recipient().String())
		want := variety()
		s.Export = func(yield func(driver.Change, error) bool) {
			for _, c := range want {
				c.Revision = mathrand.Int64()
				if !yield(c, nil) {
					return
				}
			}
		}
		var told [][2]int64
		s.Progress = func(keys, bytes int64) { told = append(told, [2]int64{keys, bytes}) }
		m := mustMake(t, l, s)
		if last := told[len(told)-1]; len(told) < 10 || last != [2]int64{m.Keys, m.Bytes} || m.Keys != int64(len(want)) {
			t.Errorf("told %d times, at last %v of %d keys, %d bytes", len(told), last, m.Keys, m.Bytes)
		}
		got, err := Get(t.Context(), l, "default", "demo", m.ID)
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, got.Object); err != nil {
			t.Fatal(err)
		}
		got.Object = compact.Bytes()
		if !reflect.DeepEqual(got, m) {
			t.Errorf("the manifest that is read is\n%+v, not\n%+v", got, m)
		}
		for _, identity := range []*age.X25519Identity{one, two} {
			keys := opened(t, l, m, identity)
			if !reflect.DeepEqual(keys.Secrets, s.Secrets) || keys.Backup != "default/demo/"+m.ID {
				t.Errorf("keys are %+v", keys)
			}
			have, err := read(l, m, keys.Identity)
			if err != nil {
				t.Fatal(err)
			}
			for key, c := range have {
				w := want[key]
				if c.Key != w.Key || !bytes.Equal(c.Value, w.Value) || c.Seconds != w.Seconds || c.Revision != m.Revision || c.Deleted {
					t.Fatalf("key %.20q is another", key)
				}
			}
			if len(have) != len(want) {
				t.Errorf("%d keys, want %d", len(have), len(want))
			}
		}
		for range Data(t.Context(), l, m, opened(t, l, m, one).Identity) {
			break // no more than that it can be left
		}
	})
}

func TestWhatIsRemovedIsGone(t *testing.T) {
	places(t, func(t *testing.T, a Access) {
		l := open(t, a)
		m := mustMake(t, l, source(owner(t).Recipient().String()))
		if names := left(t, l); len(names) != 3 {
			t.Errorf("there is %v", names)
		}
		for range 2 { // the second time there is nothing
			if err := Remove(t.Context(), l, m); err != nil {
				t.Error(err)
			}
		}
		if names := left(t, l); len(names) > 0 {
			t.Errorf("left %v", names)
		}
	})
}

func TestABackupOfNothing(t *testing.T) {
	l, o := open(t, Access{URL: "file://" + t.TempDir()}), owner(t)
	s := source(o.Recipient().String())
	s.Secrets = nil
	m := mustMake(t, l, s)
	if m.Keys != 0 || m.Bytes != 0 || m.Size == 0 {
		t.Errorf("%+v", m)
	}
	if have, err := read(l, m, opened(t, l, m, o).Identity); err != nil || len(have) > 0 {
		t.Errorf("%v, %v", have, err)
	}
}

func TestRecipients(t *testing.T) {
	good, pq := owner(t).Recipient().String(), ""
	if hybrid, err := age.GenerateHybridIdentity(); err != nil {
		t.Fatal(err)
	} else {
		pq = hybrid.Recipient().String()
	}
	for name, test := range map[string]struct {
		recipients []string
		text       string
	}{
		"one":                         {[]string{good}, ""},
		"two":                         {[]string{good, owner(t).Recipient().String()}, ""},
		"one for after quanta":        {[]string{pq}, ""},
		"both kinds together":         {[]string{good, pq}, "recipients: "},
		"none":                        {nil, "need a recipient"},
		"one that is none":            {[]string{good, "age1nobody"}, `recipient "age1nobody"`},
		"one that is empty":           {[]string{""}, `recipient ""`},
		"two in one":                  {[]string{good + "\n" + good}, "more than one"},
		"a comment":                   {[]string{"# nobody"}, "more than one"},
		"an SSH key":                  {[]string{"ssh-ed25519 AAAA"}, `recipient "ssh-ed25519 AAAA"`},
		"a secret key":                {[]string{owner(t).String()}, "recipient 1 is a secret key"},
		"a secret key in small print": {[]string{strings.ToLower(owner(t).String())}, "recipient 1 is a secret key"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckRecipients(test.recipients)
			if (err == nil) != (test.text == "") || err != nil && !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %s", err, test.text)
			}
			if err == nil {
				return
			}
			if strings.Contains(strings.ToUpper(err.Error()), "SECRET-KEY-1") {
				t.Errorf("it has a secret key in it: %v", err)
			}
			l := open(t, Access{URL: "file://" + t.TempDir()})
			if _, made := Make(t.Context(), l, source(test.recipients...)); made == nil || made.Error() != err.Error() {
				t.Errorf("Make: %v", made)
			}
			if names := left(t, l); len(names) > 0 {
				t.Errorf("left %v", names)
			}
		})
	}
}

func TestAMakeThatFailsLeavesNothing(t *testing.T) {
	failure := errors.New("the database went away")
	key := func(c driver.Change) iter.Seq2[driver.Change, error] {
		return func(yield func(driver.Change, error) bool) { yield(c, nil) }
	}
	places(t, func(t *testing.T, a Access) {
		l, recipient := open(t, a), owner(t).Recipient().String()
		for name, test := range map[string]struct {
			change func(*Source)
			want   error
		}{
			"at once":                  {func(s *Source) { s.Export = then(changes(nil), func() error { return failure }) }, failure},
			"after some":               {func(s *Source) { s.Export = then(noise(20_000, 1000), func() error { return failure }) }, failure},
			"as if it had ended":       {func(s *Source) { s.Export = then(noise(10, 10), func() error { return io.EOF }) }, io.EOF},
			"with a key that is gone":  {func(s *Source) { s.Export = key(driver.Change{Key: "k", Deleted: true}) }, nil},
			"with a key too long":      {func(s *Source) { s.Export = key(driver.Change{Key: strings.Repeat("k", maxKey+1)}) }, nil},
			"with a value too long":    {func(s *Source) { s.Export = key(driver.Change{Key: "k", Value: make([]byte, maxValue+1)}) }, nil},
			"with no life":             {func(s *Source) { s.Export = key(driver.Change{Key: "k", Seconds: -1}) }, nil},
			"of no tenant":             {func(s *Source) { s.Manifest.Tenant.Name = "" }, nil},
			"of a tenant elsewhere":    {func(s *Source) { s.Manifest.Tenant.Namespace = ".." }, nil},
			"of another tenant":        {func(s *Source) { s.Manifest.Tenant.Name = "demo/../other" }, nil},
			"with an ID that is none":  {func(s *Source) { s.Manifest.ID = "latest" }, nil},
			"with an object not JSON":  {func(s *Source) { s.Manifest.Object = json.RawMessage("{") }, nil},
			"with an object too large": {func(s *Source) { s.Manifest.Object = json.RawMessage(`"` + strings.Repeat("x", maxManifest) + `"`) }, nil},
			"with Secrets too large":   {func(s *Source) { s.Secrets[0].Data["x"] = make([]byte, maxKeys/4*3) }, nil},
		} {
			s := source(recipient)
			test.change(&s)
			if m, err := Make(t.Context(), l, s); err == nil || test.want != nil && !errors.Is(err, test.want) || m.ID != "" {
				t.Errorf("%s: %v, %v", name, m, err)
			}
			if names := left(t, l); len(names) > 0 {
				t.Fatalf("%s: left %v", name, names)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := source(recipient)
		s.Export = then(noise(2000, 1000), func() error { cancel(); return nil })
		if _, err := Make(ctx, l, s); !errors.Is(err, context.Canceled) {
			t.Errorf("when its context ends: %v", err)
		}
		if names := left(t, l); len(names) > 0 {
			t.Errorf("when its context ends: left %v", names)
		}
	})
}

func TestAnIDIsMadeOnce(t *testing.T) {
	l, o := open(t, Access{URL: "file://" + t.TempDir()}), owner(t)
	s := source(o.Recipient().String())
	m := mustMake(t, l, s)
	s.Manifest.ID = m.ID
	if _, err := Make(t.Context(), l, s); !errors.Is(err, ErrMade) {
		t.Errorf("made twice: %v", err)
	}
	if _, err := read(l, m, opened(t, l, m, o).Identity); err != nil {
		t.Errorf("and the first isn't what it was: %v", err)
	}
}

func TestManyAreMadeAtOnce(t *testing.T) {
	places(t, func(t *testing.T, a Access) {
		l, o := open(t, a), owner(t)
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() {
				s := source(o.Recipient().String())
				s.Manifest.Tenant.Name = fmt.Sprint("demo-", i%2)
				s.Export = noise(100*i, 100)
				m, err := Make(t.Context(), l, s)
				if err != nil || m.Keys != int64(100*i) {
					t.Errorf("%v, %v", m, err)
					return
				}
				if i >= 4 { // removing what others are beside
					if err := Remove(t.Context(), l, m); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		made, unreadable, err := List(t.Context(), l, "", "")
		if err != nil || len(made) != 4 || len(unreadable) > 0 {
			t.Errorf("%d made, %v, %v", len(made), unreadable, err)
		}
		for _, m := range made {
			if _, err := read(l, m, opened(t, l, m, o).Identity); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAServerThatGoesAway(t *testing.T) {
	s := startServer(t)
	defer s.end()
	a := s.accessTo(s.bucket(t))
	l := open(t, a)
	src := source(owner(t).Recipient().String())
	src.Export = then(noise(2000, 1000), func() error { s.kill(); return nil })
	_, err := Make(t.Context(), l, src)
	said(t, err, ErrAway, "is left there", a)
}

const killedVariable = "STOKER_TEST_BACKUP_KILLED"

// beKilled makes a backup that never ends, in a process of its own. It says when it has sent most of it.
func beKilled() {
	var order struct {
		Access    Access
		Recipient string
		After     string
	}
	err := json.Unmarshal([]byte(os.Getenv(killedVariable)), &order)
	ctx := context.Background()
	var l Location
	if err == nil {
		l, err = OpenLocation(ctx, order.Access)
	}
	if err == nil {
		wait := func() error { fmt.Fprintln(os.Stderr, "ready"); select {} }
		s := source(order.Recipient)
		s.Export = noise(20_000, 1000)
		if order.After == "data" {
			s.Export = noise(2000, 1000)
			s.Now = func() time.Time { _ = wait(); return time.Time{} }
		} else {
			s.Export = then(s.Export, wait)
		}
		_, err = Make(ctx, l, s)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestAMakeThatIsKilledIsUnfinished(t *testing.T) {
	places(t, func(t *testing.T, a Access) {
		l, o := open(t, a), owner(t)
		whole := mustMake(t, l, source(o.Recipient().String()))
		for after, parts := range map[string]int{"keys": 1, "data": 0} {
			order, err := json.Marshal(map[string]any{"Access": a, "Recipient": o.Recipient().String(), "After": after})
			if err != nil {
				t.Fatal(err)
			}
			runKilled(t, string(order))
			made, unreadable, err := List(t.Context(), l, "", "")
			if err != nil || len(made) != 1 || len(unreadable) > 0 {
				t.Errorf("%v made, %v, %v", made, unreadable, err)
			}
			if names, err := Unfinished(t.Context(), l, "", "", time.Now().Add(-time.Hour)); err != nil || len(names) > 0 {
				t.Errorf("unfinished an hour ago: %v, %v", names, err)
			}
			names, err := Unfinished(t.Context(), l, "", "", time.Now().Add(time.Hour))
			if err != nil || len(names) != 2 {
				t.Errorf("unfinished: %v, %v", names, err)
			}
			all := left(t, l)
			if got := len(slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !strings.HasPrefix(n, "part of") })); got != parts {
				t.Errorf("there are %d parts: %v", got, all)
			}
			for _, name := range names {
				if err := l.Delete(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
			if names := left(t, l); len(names) != 3 {
				t.Errorf("left %v", names)
			}
		}
		if _, err := read(l, whole, opened(t, l, whole, o).Identity); err != nil {
			t.Error(err)
		}
	})
}

// runKilled has beKilled do what it is told, and kills it when it is ready.
func runKilled(t *testing.T, order string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedVariable+"="+order)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// live is how much memory is in use by what is reachable.
func live() int64 {
	runtime.GC()
	runtime.GC() // frees what pools kept through the first
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestMemoryIsBounded(t *testing.T) {
	keys := 200_000
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		keys = 20_000 // which take as long then, and are more than the bound as well
	}
	places(t, func(t *testing.T, a Access) {
		bound := int64(6 << 20)
		l, o := open(t, a), owner(t)
		s := source(o.Recipient().String())
		s.Export = noise(keys, 1000)
		before, most, calls := live(), int64(0), 0
		look := func(int64, int64) {
			if calls++; calls%10 == 0 {
				most = max(most, live()-before)
			}
		}
		s.Progress = look
		m := mustMake(t, l, s)
		if _, ok := l.(*bucket); ok {
			most -= partSize + wholeSize
		}
		t.Logf("Make: %d KiB", most>>10)
		if most > bound {
			t.Errorf("Make has %d bytes in use", most)
		}
		identity := opened(t, l, m, o).Identity
		before, most, calls = live(), 0, 0
		read := 0
		for _, err := range Data(t.Context(), l, m, identity) {
			if err != nil {
				t.Fatal(err)
			}
			if read++; read%1000 == 0 {
				look(0, 0)
			}
		}
		t.Logf("Data: %d KiB", most>>10)
		if most > bound || read != keys {
			t.Errorf("Data has %d bytes in use, of %d keys", most, read)
		}
	})
}

// objects are what tenants have: much the same, again and again.
func objects(keys int) iter.Seq2[driver.Change, error] {
	const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%[1]s-config","namespace":"team-%[2]d",` +
		`"uid":"%[1]s-4f2a-9c31-%[1]s","creationTimestamp":"2026-11-26T03:15:%02[2]dZ",` +
		`"labels":{"app.kubernetes.io/name":"%[1]s","app.kubernetes.io/part-of":"team-%[2]d"},` +
		`"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]},` +
		`"data":{"token":"%[3]x","settings":"level=info\\nworkers=%[2]d\\n"}}`
	return func(yield func(driver.Change, error) bool) {
		random := mathrand.New(mathrand.NewPCG(1, 2))
		for i := range keys {
			name := fmt.Sprintf("%08x", random.Uint32())
			value := fmt.Appendf(nil, object, name, i%60, []uint64{random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64()})
			if !yield(driver.Change{Key: "configmaps/default/" + name, Value: value}, nil) {
				return
			}
		}
	}
}

func BenchmarkMake(b *testing.B) {
	s := theServer(b)
	for kind, export := range map[string]iter.Seq2[driver.Change, error]{"noise": noise(200_000, 1000), "objects": objects(200_000)} {
		for name, a := range map[string]Access{"directory": {URL: "file://" + b.TempDir()}, "bucket": s.accessTo(s.bucket(b))} {
			l, o := open(b, a), owner(b)
			src := source(o.Recipient().String())
			src.Export = export
			m := mustMake(b, l, src)
			b.Run(kind+"/"+name+"/make", func(b *testing.B) {
				b.SetBytes(m.Bytes)
				for b.Loop() {
					mustMake(b, l, src)
				}
				b.ReportMetric(float64(m.Size)/float64(m.Bytes), "size/bytes")
			})
			identity := opened(b, l, m, o).Identity
			b.Run(kind+"/"+name+"/read", func(b *testing.B) {
				b.SetBytes(m.Bytes)
				for b.Loop() {
					for _, err := range Data(b.Context(), l, m, identity) {
						if err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
